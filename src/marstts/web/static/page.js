// @ts-check
// The page: loads the parts, then speaks. This module connects the others.

/** @import {Part} from "./loading.js" */
/** @import {Chunk} from "./speech.js" */

import { Callee } from "./calls.js";
import { startCloneForm } from "./clone-form.js";
import { attempt, byId, make, on, show } from "./dom.js";
import { player } from "./player.js";
import { Take } from "./takes.js";
import { pronunciations, startReading, startTextField, text } from "./text-field.js";
import { allVoices, chosenVoice, startVoices } from "./voice-list.js";

const CONTROL_MS = 60_000; // longest wait for the service worker of a first visit

/** @type {any} */
let site = null;
/** @type {Callee} */
let reader;
/** @type {Callee} */
let speech;
/** @type {Take | null} */
let take = null;
let version = 0;
let request = 0; // of `speak`: only the last one goes on
let reading = 0; // the request whose text is being read; 0 for none

async function start() {
  for (const name of ["WebAssembly", "Worker", "AudioWorkletNode", "TransformStream"]) {
    if (!(name in globalThis)) throw new Error(`This browser has no ${name}; open the page with a newer one, on https.`);
  }
  startTextField();
  await control();
  const response = await fetch("site.json");
  site = await response.json();
  byId("model").textContent = `${site.model.label}, marstts ${site.version}`;
  startVoices(site.voices, site.model.label);
  const progress = new Progress(site.parts);
  reader = new Callee("./reader-worker.js");
  speech = new Callee("./speech-worker.js");
  const reading = reader.call("open", { parts: site.parts, ...site.reader }, (bytes) => progress.add("reader", bytes));
  const speaking = speech.call("open", site, ({ part, bytes }) => progress.add(part, bytes));
  await Promise.all([
    reading.then(() => progress.finish("reader")).then(() => startReading(reader)),
    speaking.then(() => ["runtime", "speaking"].forEach((part) => progress.finish(part))),
  ]);
  byId("speak").disabled = byId("again").disabled = false;
  document.body.dataset.ready = "speaking";
  await speech.call("openCloning", null, ({ part, bytes }) => progress.add(part, bytes));
  progress.finish("cloning");
  byId("clone").disabled = false;
  startCloneForm(speech, site.codec.sampleRate);
  byId("loading").hidden = true;
  document.body.dataset.ready = "cloning";
}

// Wait until the service worker keeps what is loaded; the page works without one, too.
async function control() {
  if (!navigator.serviceWorker) return;
  const registered = await navigator.serviceWorker.register("service-worker.js").catch(() => null);
  const installing = registered?.installing ?? registered?.waiting;
  if (!installing || navigator.serviceWorker.controller) return; // a reload that passes it by, too
  await Promise.race([
    new Promise((resolve) => installing.addEventListener("statechange", () => installing.state === "redundant" && resolve(null))),
    new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true })),
    new Promise((resolve) => setTimeout(resolve, CONTROL_MS)),
  ]);
}

/** Bars of the parts that are loaded. */
class Progress {
  /** @param {Part[]} parts */
  constructor(parts) {
    this.rows = new Map(parts.map((part) => [part.id, this.rowOf(part)]));
    byId("parts").replaceChildren(...[...this.rows.values()].map(({ row }) => row));
  }

  /** @param {Part} part */
  rowOf({ title, files }) {
    const size = files.reduce((sum, { bytes }) => sum + bytes, 0);
    const bar = make("progress", { max: size, value: 0, ariaLabel: title });
    const note = make("span", { className: "note", textContent: `${(size / 1e6).toFixed(1)} MB` });
    return { row: make("li", {}, make("span", { textContent: title }), note, bar), bar, note, size, loaded: 0 };
  }

  /** @param {string} part @param {number} bytes */
  add(part, bytes) {
    const row = /** @type {any} */ (this.rows.get(part));
    row.loaded += bytes;
    const isLoaded = row.loaded > 0.99 * row.size;
    row.bar.value = Math.min(row.loaded, 0.9 * row.size); // the rest stands for opening it
    row.note.textContent = isLoaded ? "starting" : `${(row.loaded / 1e6).toFixed(1)} of ${(row.size / 1e6).toFixed(1)} MB`;
  }

  /** @param {string} part */
  finish(part) {
    const { bar, note, size } = /** @type {any} */ (this.rows.get(part));
    bar.value = size;
    note.textContent = "ready";
  }
}

async function speak() {
  if (byId("speak").disabled || !byId("speech-form").reportValidity()) return;
  player.open(site.codec.sampleRate).catch(() => {}); // what is wrong with it is said where it is played
  const number = await stop();
  if (request !== number) return; // stopped, or asked again
  show("");
  const [said, voice, seed] = [text(), chosenVoice(), version];
  reading = number;
  showStop();
  const found = await reader.call("ask", { sentences: said, lexicon: pronunciations() }).finally(() => {
    if (reading === number) reading = 0;
    showStop();
  });
  if (request !== number) return;
  const made = new Take(said, voice.name, seed + 1, site.codec.sampleRate);
  take = made;
  if (found.warning) made.warnings.push(found.warning);
  showStop();
  try {
    await speech.call("speak", { sentences: found.sentences, voice, voices: allVoices(), seed }, (/** @type {Chunk} */ chunk) => made.push(chunk));
  } catch (error) {
    if (!(error instanceof Error && error.message === "stopped")) throw error;
  } finally {
    made.finish();
    showStop();
  }
}

// Stop, and give the number of the request that may come next.
async function stop() {
  const number = ++request;
  reading = 0;
  player.stop();
  if (take?.isMaking) await speech.call("stop", null);
  showStop();
  return number;
}

function showStop() {
  const isFocused = document.activeElement === byId("stop");
  byId("stop").hidden = !player.sound && !take?.isMaking && !reading;
  if (isFocused && byId("stop").hidden) byId("speak").focus(); // for who uses the keyboard
}

on("speech-form", "submit", speak);
on("again", "click", () => {
  version += 1;
  return speak();
});
on("stop", "click", stop);
document.addEventListener("playing", showStop);
document.addEventListener("keydown", (press) => {
  if (press.key === "Enter" && (press.ctrlKey || press.metaKey)) {
    press.preventDefault();
    attempt(speak);
  }
  if (press.key === "Escape") attempt(stop);
});
addEventListener("unhandledrejection", ({ reason }) => show(reason?.message ?? String(reason), { isError: true }));
attempt(start);
