// @ts-check
// The voices: those of the site, and those that were cloned here. Cloned voices are kept only where a button asks for it,
// and then as numbers, without the recording.

import { attempt, byId, iconButton, make, show } from "./dom.js";

/** @import {Voice} from "./types.js" */

const STORE = "marstts-voices";

/** @typedef {Voice & {description: string, source?: string, isOwn?: boolean, isKept?: boolean, model?: string}} ListedVoice */

const ROLES = /** @type {const} */ (["identity", "style", "timbre"]);
const isOfModel = (/** @type {ListedVoice} */ voice) => !voice.isOwn || voice.model === model;

/** @type {ListedVoice[]} */
let voices = [];
let model = "";

export const chosenVoice = () => voices.find(({ name }) => byId(`voice-${name}`)?.checked) ?? voices.filter(isOfModel)[0];

export const allVoices = () => Object.fromEntries(voices.filter(isOfModel).map((voice) => [voice.name, voice]));

/** @param {ListedVoice[]} given @param {string} label of the model that reads them */
export function startVoices(given, label) {
  model = label;
  voices = [...keptVoices().filter(({ name }) => given.every((voice) => voice.name !== name)), ...given];
  draw(voices.filter(isOfModel)[0]?.name);
}

/** Throw where a clone cannot have a name. @param {string} name */
export function checkName(name) {
  if (!name) throw new Error("Give the voice a name.");
  if (voices.some((voice) => voice.name === name && !voice.isOwn)) throw new Error(`There is a voice ${name} already; give another name.`);
}

/** Add a voice that was cloned. @param {string} name @param {Voice["embeddings"]} embeddings */
export function addVoice(name, embeddings) {
  checkName(name);
  const wasKept = voices.some((voice) => voice.name === name && voice.isKept);
  voices = [{ name, embeddings, description: "cloned here", isOwn: true, model }, ...voices.filter((voice) => voice.name !== name)];
  if (wasKept) keep(); // the one that it replaces goes
  draw(name);
}

/** @returns {ListedVoice[]} */
function keptVoices() {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "[]").filter(isVoice);
  } catch {
    return []; // blocked, or written by something else
  }
}

// Whether a value of the store, which other pages of the same host can write, is a voice. @param {any} value
const isVoice = (/** @type {any} */ value) =>
  typeof value?.name === "string" && value.name !== "" && ROLES.every((role) => isVector(value.embeddings?.[role]));

const isVector = (/** @type {any} */ value) => Array.isArray(value) && value.length > 0 && value.every(Number.isFinite);

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

/** @param {string} name @param {string} element */
function focusOn(name, element) {
  byId(`voice-${name}`)?.closest(".voice")?.querySelector(element)?.focus();
}

/** @param {ListedVoice} voice @param {boolean} isChosen */
function rowOf(voice, isChosen) {
  const isUsable = isOfModel(voice);
  const radio = make("input", { type: "radio", name: "voice", id: `voice-${voice.name}`, value: voice.name, disabled: !isUsable });
  radio.checked = isChosen;
  radio.onchange = () => (byId("chosen").textContent = `with the voice ${voice.name}`);
  const from = isUsable ? String(voice.description).split(";")[0] : "cloned for another version of the model: clone it again";
  const about = from + (voice.isKept ? ", kept in this browser" : "");
  const label = make("span", {}, make("b", { textContent: voice.name }), make("span", { className: "note", textContent: about }));
  const row = make("div", { className: "voice", title: voice.source ?? "" }, make("label", {}, radio, label));
  if (voice.isOwn) {
    const keepButton = make("button", { type: "button", className: "small", textContent: voice.isKept ? "Forget" : "Keep" });
    keepButton.setAttribute("aria-label", `${voice.isKept ? "Forget" : "Keep"} ${voice.name} in this browser`);
    keepButton.onclick = () => {
      voice.isKept = !voice.isKept;
      attempt(keep);
      draw();
      focusOn(voice.name, "button");
    };
    row.append(keepButton, iconButton("close", `Delete ${voice.name}`, () => remove(voice)));
  }
  return row;
}

/** @param {ListedVoice} voice */
function remove(voice) {
  voices = voices.filter((other) => other !== voice);
  attempt(keep);
  draw();
  focusOn(chosenVoice().name, "input"); // for who uses the keyboard: the button is gone
  show(`The voice ${voice.name} was deleted.`);
}
