// The page: choose a voice, type, listen; record or drop a file, clone.

import * as api from "./api.js";
import { Player, RATE } from "./player.js";
import { Reading } from "./reading.js";
import { Recorder } from "./recorder.js";
import { wavFile } from "./wav.js";

const byId = (id) => document.getElementById(id);
let player = null;
let request = null;
let recorder = null;
let recording = null;

function show(sentence) {
  byId("status").textContent = sentence;
}

async function attempt(act) {
  try {
    await act();
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("key-form").hidden = byId("key-form").hidden && error.status !== 401;
    show(error.message);
  }
}

async function fillVoices(chosen) {
  const voices = await api.listVoices();
  byId("voice").replaceChildren(
    ...voices
      .filter((voice) => !voice.description?.startsWith("alias"))
      .map((voice) => new Option(voice.description ? `${voice.name} (${voice.description})` : voice.name, voice.id)),
  );
  if (chosen) byId("voice").value = chosen;
}

async function stop() {
  request?.abort();
  await player?.stop();
  request = player = null;
  byId("stop").disabled = true;
}

async function speak() {
  await stop();
  const [playing, asking] = [new Player(), new AbortController()];
  [player, request] = [playing, asking];
  byId("stop").disabled = false;
  const reading = new Reading(byId("reading"), playing);
  show("Speaking …");
  const started = performance.now();
  try {
    const response = await api.speak(byId("text").value, byId("voice").value, Number(byId("seed").value), asking.signal);
    const wait = ((performance.now() - started) / 1000).toFixed(2);
    show(`First audio after ${wait} s.`);
    for await (const event of api.events(response)) {
      if (event.error) throw new Error(event.error.message);
      if (event.warning) show(event.warning);
      if (event.sentence) reading.addSentence(event.sentence);
      if (event.words) reading.addWords(event.words);
      if (event.audio) playing.push(Uint8Array.from(atob(event.audio), (letter) => letter.charCodeAt(0)));
    }
    await playing.finish();
    offerDownload(playing.samples());
  } finally {
    reading.stop();
    if (player === playing) await stop();
  }
}

function anotherTake() {
  byId("seed").value = String((Number(byId("seed").value) + 1) % 2 ** 32);
  return speak();
}

// The requests of other programs that give the same speech.
function showCode() {
  const fields = {
    model: "tts-1", voice: byId("voice").value, input: byId("text").value, seed: Number(byId("seed").value),
    response_format: "wav",
  };
  const quoted = JSON.stringify(fields).replaceAll("'", "'\\''");
  byId("curl").textContent =
    `curl ${location.origin}/v1/audio/speech -H 'Content-Type: application/json' \\\n  -d '${quoted}' -o speech.wav`;
  byId("python").textContent =
    `import openai\n\nclient = openai.OpenAI(base_url="${location.origin}/v1", api_key="none")\n` +
    `speech = client.audio.speech.create(\n    model="tts-1", voice=${JSON.stringify(fields.voice)},\n` +
    `    input=${JSON.stringify(fields.input)},\n    response_format="wav", extra_body={"seed": ${fields.seed}},\n)\n` +
    `speech.write_to_file("speech.wav")`;
}

function offerDownload(samples) {
  const link = byId("download");
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(wavFile(samples, RATE));
  link.hidden = false;
}

function keep(file) {
  recording = file;
  const preview = byId("preview");
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.src = URL.createObjectURL(file);
  preview.hidden = false;
}

async function toggleRecording() {
  const button = byId("record");
  if (recorder) {
    const finished = recorder;
    recorder = null;
    keep(await finished.stop());
    byId("level").value = 0;
    byId("transcript").value = byId("prompt").textContent;
  } else {
    recorder = await Recorder.start((level) => (byId("level").value = level));
  }
  button.textContent = recorder ? "Stop recording" : "Record";
  button.setAttribute("aria-pressed", String(recorder !== null));
}

async function clone() {
  if (!recording) throw new Error("Record yourself or choose a file first.");
  show("Cloning …");
  const voice = await api.createVoice(
    byId("name").value.trim(), recording, byId("transcript").value.trim(), byId("consent").value.trim(),
  );
  await fillVoices(voice.id);
  show([`The voice ${voice.name} can speak now.`, ...voice.warnings].join(" "));
}

async function deleteChosen() {
  const chosen = byId("voice").value;
  if (!chosen.startsWith("voice_")) throw new Error("Only uploaded voices can be deleted.");
  await api.deleteVoice(chosen);
  await fillVoices();
  show("The voice was deleted.");
}

function on(id, event, act) {
  byId(id).addEventListener(event, (happening) => {
    happening.preventDefault();
    attempt(() => act(happening));
  });
}

function count() {
  byId("count").textContent = `${byId("text").value.length} of 4096 characters`;
}

on("key-form", "submit", async () => {
  api.setKey(byId("key").value);
  await fillVoices();
  byId("key-form").hidden = true;
  show("");
});
on("speech-form", "submit", speak);
on("stop", "click", stop);
on("again", "click", anotherTake);
byId("code").addEventListener("toggle", showCode);
byId("speech-form").addEventListener("input", showCode);
on("record", "click", toggleRecording);
on("clone-form", "submit", clone);
on("delete", "click", deleteChosen);
on("clone-form", "dragover", () => byId("clone-form").classList.add("drop"));
on("clone-form", "dragleave", () => byId("clone-form").classList.remove("drop"));
on("clone-form", "drop", (drop) => {
  byId("clone-form").classList.remove("drop");
  if (drop.dataTransfer.files.length) keep(drop.dataTransfer.files[0]);
});
byId("file").addEventListener("change", ({ target }) => target.files.length && keep(target.files[0]));
byId("text").addEventListener("input", count);
count();
attempt(() => fillVoices());
