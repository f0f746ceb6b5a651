// Cloning: record or choose files, see at once whether each is usable, and clone them.

import * as api from "./api.js";
import { attempt, byId, clock, iconButton, make, on, onDrop, onFile, show } from "./dom.js";
import { peakOf, Recorder } from "./recorder.js";
import { fillVoices } from "./voices.js";

const MIN_SECONDS = 2;
const MAX_SECONDS = 15; // more is not used
const SPEECH_LEVEL = 0.02;
const LOUD_LEVEL = 0.99;
const QUIET_LEVEL = 0.05;
const BLOCK = 2048; // samples

const MAX_RECORDINGS = 20; // as the server

let recorder = null;
let recordings = []; // each with its file, what is wrong with it, and whether it was recorded here

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
  const count = recordings.length > 1 ? ` There are ${recordings.length} recordings.` : "";
  advise(wrong || `Good: listen to it, then give it a name.${count}`, Boolean(wrong));
  return wrong;
}

// Keep a recording; it takes the place of one before it that is not usable.
function keep(file, recorded, isOwn) {
  if (recordings.at(-1)?.wrong) drop(recordings.at(-1));
  if (recordings.length === MAX_RECORDINGS) throw new Error(`A voice has at most ${MAX_RECORDINGS} recordings.`);
  const recording = { file, isOwn, url: URL.createObjectURL(file) };
  recordings.push(recording);
  recording.row = make("li", {},
    make("audio", { controls: true, src: recording.url }),
    iconButton("close", "Remove this recording", () => drop(recording)));
  byId("recordings").append(recording.row);
  byId("recordings").hidden = false;
  recording.wrong = report(recorded);
}

function drop(recording) {
  URL.revokeObjectURL(recording.url);
  recording.row.remove();
  if (recordings[0] === recording) byId("transcript").value = ""; // it has the words of the first
  recordings = recordings.filter((kept) => kept !== recording);
  byId("recordings").hidden = recordings.length === 0;
  byId("time").textContent = "";
  advise("", false);
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
  keep(file, recorded, false);
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
  keep(await finished.stop(), finished.recorded, true);
  fillTranscript();
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
  const isRead = byId("deep").checked && recordings[0]?.isOwn; // the sentence to read was probably read
  if (isRead && !byId("transcript").value) byId("transcript").value = byId("prompt").textContent;
}

function clear() {
  while (recordings.length) drop(recordings.at(-1));
  byId("clone-form").reset();
  byId("time").textContent = "";
  advise("", false);
  fillTranscript();
}

async function clone() {
  await stopRecording();
  if (!recordings.length) throw new Error("Record yourself or choose a file first.");
  byId("clone").disabled = true;
  show("Cloning …");
  try {
    let transcript = byId("deep").checked ? byId("transcript").value.trim() : "";
    const warnings = [];
    if (transcript && !(await api.transcriptFits(recordings[0].file, transcript))) {
      transcript = "";
      warnings.push("Its words were not found with certainty in the recording, so it uses the sound alone.");
    }
    const name = byId("name").value.trim();
    const files = recordings.map(({ file }) => file);
    const voice = await api.createVoice(name, files, transcript, byId("consent").value.trim());
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
