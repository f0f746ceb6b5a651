// @ts-check
// The voices: those of the site, and those that were cloned here. Cloned voices are kept only where a button asks for it,
// and then as numbers, without the recording.

import { byId, iconButton, make, show } from "./dom.js";

/** @import {Voice} from "./types.js" */

const STORE = "marstts-voices";

/** @typedef {Voice & {description: string, source?: string, isOwn?: boolean, isKept?: boolean, model?: string}} ListedVoice */

/** @type {ListedVoice[]} */
let voices = [];
let model = "";

export const chosenVoice = () => voices.find(({ name }) => byId(`voice-${name}`)?.checked) ?? voices[0];

export const allVoices = () => Object.fromEntries(voices.map((voice) => [voice.name, voice]));

/** @param {ListedVoice[]} given @param {string} label of the model that reads them */
export function startVoices(given, label) {
  model = label;
  voices = [...keptVoices().filter((voice) => voice.model === label), ...given];
  draw(voices[0]?.name);
}

/** Add a voice that was cloned. @param {string} name @param {Voice["embeddings"]} embeddings */
export function addVoice(name, embeddings) {
  if (voices.some((voice) => voice.name === name && !voice.isOwn)) throw new Error(`There is a voice ${name} already; give another name.`);
  const wasKept = voices.some((voice) => voice.name === name && voice.isKept);
  voices = [{ name, embeddings, description: "cloned here", isOwn: true, model }, ...voices.filter((voice) => voice.name !== name)];
  if (wasKept) keep(); // the one that it replaces goes
  draw(name);
}

/** @returns {ListedVoice[]} */
function keptVoices() {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "[]");
  } catch {
    return []; // blocked, or written by something else
  }
}

function keep() {
  const kept = voices.filter((voice) => voice.isKept);
  try {
    if (kept.length) localStorage.setItem(STORE, JSON.stringify(kept));
    else localStorage.removeItem(STORE);
  } catch {
    throw new Error("This browser keeps nothing for this page; the voice stays until you close it.");
  }
}

/** @param {string | undefined} chosen */
function draw(chosen = chosenVoice()?.name) {
  byId("voice-list").replaceChildren(...voices.map((voice) => rowOf(voice, voice.name === chosen)));
  byId("chosen").textContent = chosenVoice() ? `with the voice ${chosenVoice().name}` : "";
}

/** @param {ListedVoice} voice @param {boolean} isChosen */
function rowOf(voice, isChosen) {
  const radio = make("input", { type: "radio", name: "voice", id: `voice-${voice.name}`, value: voice.name });
  radio.checked = isChosen;
  radio.onchange = () => (byId("chosen").textContent = `with the voice ${voice.name}`);
  const about = voice.description.split(";")[0] + (voice.isKept ? ", kept in this browser" : "");
  const label = make("span", {}, make("b", { textContent: voice.name }), make("span", { className: "note", textContent: about }));
  const row = make("div", { className: "voice", title: voice.source ?? "" }, make("label", {}, radio, label));
  if (voice.isOwn) {
    const keepButton = make("button", { type: "button", className: "small", textContent: voice.isKept ? "Forget" : "Keep" });
    keepButton.setAttribute("aria-label", `${voice.isKept ? "Forget" : "Keep"} ${voice.name} in this browser`);
    keepButton.onclick = () => {
      voice.isKept = !voice.isKept;
      keep();
      draw();
    };
    row.append(keepButton, iconButton("close", `Delete ${voice.name}`, () => remove(voice)));
  }
  return row;
}

/** @param {ListedVoice} voice */
function remove(voice) {
  voices = voices.filter((other) => other !== voice);
  keep();
  draw();
  show(`The voice ${voice.name} was deleted.`);
}
