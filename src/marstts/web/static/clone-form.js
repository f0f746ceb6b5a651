// @ts-check
// Cloning: record or choose a file, listen, and make a voice of it.

import { attempt, byId, clock, make, on, onDrop, onFile, show } from "./dom.js";
import { Recorder } from "./recorder.js";
import { addVoice, checkName } from "./voice-list.js";

/** @import {Callee} from "./calls.js" */

const MAX_SECONDS = 15;
const MAX_FILE_MINUTES = 10; // a longer one would take all memory when it is decoded
const MAX_FILE_BYTES = 120e6; // ten minutes of a WAV file in stereo at 96 kHz
const DURATION_MS = 5000; // longest wait for a duration

/** @type {any} */
let recorder = null;
/** @type {Blob | null} */
let recording = null;

async function startRecording() {
  let seconds = 0;
  recorder = await Recorder.start((/** @type {number} */ level, /** @type {number} */ more) => {
    seconds += more;
    byId("level").value = level;
    byId("time").textContent = `${clock(seconds)} / ${clock(MAX_SECONDS)}`;
    if (seconds >= MAX_SECONDS) attempt(stopRecording);
  });
  showRecording();
}

async function stopRecording() {
  if (!recorder) return;
  const finished = recorder;
  recorder = null;
  showRecording();
  useRecording(await finished.stop());
}

/** @param {Blob} blob */
function useRecording(blob) {
  recording = blob;
  if (byId("recording").src) URL.revokeObjectURL(byId("recording").src);
  byId("recording").src = URL.createObjectURL(blob);
  byId("recording").hidden = false;
}

function showRecording() {
  const isOn = recorder !== null;
  byId("record").textContent = isOn ? "Stop recording" : "Record";
  byId("record").setAttribute("aria-pressed", String(isOn));
  byId("level").hidden = !isOn;
}

/** Seconds of a recording, as its file states them: NaN where it does not. @param {Blob} blob @returns {Promise<number>} */
function duration(blob) {
  const sound = make("audio", { preload: "metadata", src: URL.createObjectURL(blob) });
  const found = new Promise((resolve) => {
    sound.onloadedmetadata = sound.onerror = () => resolve(sound.duration);
    setTimeout(() => resolve(NaN), DURATION_MS);
  });
  return found.finally(() => URL.revokeObjectURL(sound.src));
}

/** The samples of a recording at a rate, mixed to one channel. @param {Blob} blob @param {number} rate */
async function samplesOf(blob, rate) {
  if (blob.size > MAX_FILE_BYTES || (await duration(blob)) > 60 * MAX_FILE_MINUTES) {
    throw new Error(`The recording is longer than ${MAX_FILE_MINUTES} minutes; choose a part of it, 5 to 15 seconds of one speaker.`);
  }
  const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await blob.arrayBuffer()).catch(() => {
    throw new Error("Expected a recording, such as a WAV, MP3 or FLAC file.");
  });
  const mixed = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    sound.getChannelData(channel).forEach((value, n) => (mixed[n] += value / sound.numberOfChannels));
  }
  return mixed;
}

/** @param {Callee} speech @param {number} rate */
export function startCloneForm(speech, rate) {
  on("record", "click", () => (recorder ? stopRecording() : startRecording()));
  onFile("choose", "file", useRecording);
  onDrop("clone-form", useRecording);
  on("clone-form", "submit", async () => {
    await stopRecording();
    if (!recording) throw new Error("Record yourself or choose a file first.");
    const name = byId("name").value.trim();
    checkName(name); // before the work
    show("Cloning …");
    byId("clone").disabled = true;
    try {
      addVoice(name, await speech.call("clone", await samplesOf(recording, rate)));
    } finally {
      byId("clone").disabled = false;
    }
    show(`The voice ${name} can speak now.`);
  });
}
