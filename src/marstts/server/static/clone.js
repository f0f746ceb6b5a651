// Cloning: record or choose a file, see at once whether it is usable, and clone it.

import * as api from "./api.js";
import { attempt, byId, clock, on, onDrop, onFile, show } from "./dom.js";
import { peakOf, Recorder } from "./recorder.js";
import { fillVoices } from "./voices.js";

const MIN_SECONDS = 2;
const MAX_SECONDS = 15; // more is not used
const SPEECH_LEVEL = 0.02;
const LOUD_LEVEL = 0.99;
const QUIET_LEVEL = 0.05;
const BLOCK = 2048; // samples

let recorder = null;
let recording = null;
let isOwn = false; // recorded here, not chosen as a file

// What has been recorded: seconds, seconds that are not silent, and the highest level.
class Recorded {
  seconds = 0;
  loudSeconds = 0;
  peak = 0;

  add(level, seconds) {
    this.seconds += seconds;
    if (level >= SPEECH_LEVEL) this.loudSeconds += seconds;
    this.peak = Math.max(this.peak, level);
  }

  // What is wrong with the sound so far, or nothing.
  get complaint() {
    if (this.peak >= LOUD_LEVEL) return "Too loud: go further from the microphone, or turn it down.";
    if (this.seconds >= 1 && this.peak < QUIET_LEVEL) return "Very quiet: go nearer to the microphone, or turn it up.";
    return "";
  }

  get shortness() {
    if (this.loudSeconds >= MIN_SECONDS) return "";
    return `Too short: ${this.loudSeconds.toFixed(1)} s of speech. Read for at least ${MIN_SECONDS} s.`;
  }
}

function advise(sentence, isBad) {
  byId("advice").textContent = sentence;
  byId("advice").classList.toggle("bad", isBad);
}

function report(recorded) {
  const wrong = recorded.complaint || recorded.shortness;
  byId("time").textContent = `${recorded.seconds.toFixed(1)} s`;
  advise(wrong || "Good: listen to it, then give it a name.", Boolean(wrong));
}

function keep(file) {
  recording = file;
  const preview = byId("preview");
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(file);
  preview.hidden = false;
}

async function chooseFile(file) {
  const recorded = new Recorded();
  try {
    const sound = await new OfflineAudioContext(1, 1, 24000).decodeAudioData(await file.arrayBuffer());
    const samples = sound.getChannelData(0);
    for (let at = 0; at < samples.length; at += BLOCK) {
      const block = samples.subarray(at, at + BLOCK);
      recorded.add(peakOf(block), block.length / 24000);
    }
  } catch {
    throw new Error(`${file.name}: expected a recording, such as a WAV, MP3 or FLAC file.`);
  }
  keep(file);
  isOwn = false;
  byId("transcript").value = "";
  report(recorded);
}

async function startRecording() {
  const recorded = new Recorded();
  recorder = await Recorder.start((level, seconds) => {
    recorded.add(level, seconds);
    byId("level").value = level;
    byId("time").textContent = `${clock(recorded.seconds)} / ${clock(MAX_SECONDS)}`;
    const progress = recorded.shortness ? "Recording …" : "Long enough: stop when you have read all.";
    advise(recorded.complaint || progress, Boolean(recorded.complaint));
    if (recorded.seconds >= MAX_SECONDS) attempt(stopRecording);
  });
  recorder.recorded = recorded;
  showRecording();
}

async function stopRecording() {
  if (!recorder) return;
  const finished = recorder;
  recorder = null;
  showRecording();
  keep(await finished.stop());
  isOwn = true;
  fillTranscript();
  report(finished.recorded);
}

function showRecording() {
  const isOn = recorder !== null;
  byId("record").textContent = isOn ? "Stop recording" : "Record";
  byId("record").setAttribute("aria-pressed", String(isOn));
  byId("level").hidden = !isOn;
  byId("level").value = 0;
}

function fillTranscript() {
  byId("words").hidden = !byId("deep").checked;
  if (byId("deep").checked && isOwn && !byId("transcript").value) byId("transcript").value = byId("prompt").textContent;
}

function clear() {
  recording = null;
  byId("clone-form").reset();
  byId("preview").hidden = true;
  byId("time").textContent = "";
  advise("", false);
  fillTranscript();
}

async function clone() {
  await stopRecording();
  if (!recording) throw new Error("Record yourself or choose a file first.");
  byId("clone").disabled = true;
  show("Cloning …");
  try {
    let transcript = byId("deep").checked ? byId("transcript").value.trim() : "";
    const warnings = [];
    if (transcript && !(await api.transcriptFits(recording, transcript))) {
      transcript = "";
      warnings.push("Its words were not found with certainty in the recording, so it uses the sound alone.");
    }
    const name = byId("name").value.trim();
    const voice = await api.createVoice(name, recording, transcript, byId("consent").value.trim());
    await fillVoices(voice.id);
    clear();
    show([`The voice ${voice.name} can speak now.`, ...warnings, ...voice.warnings].join(" "));
  } finally {
    byId("clone").disabled = false;
  }
}

export function startClone() {
  on("record", "click", () => (recorder ? stopRecording() : startRecording()));
  on("clone-form", "submit", clone);
  on("deep", "change", fillTranscript);
  onDrop("clone-form", chooseFile);
  onFile("choose", "file", chooseFile);
}
