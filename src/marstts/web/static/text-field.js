// @ts-check
// The text, behind it the word that plays, and the pronunciations of its words.

import { byId, make, on } from "./dom.js";

/** @import {Callee} from "./calls.js" */

const WAIT_MS = 400; // after the last letter, before the text is read
const REACH = 500; // characters in which the next word is looked for
const MAX_WORDS = 80;

/** @type {HTMLTextAreaElement} */
const area = byId("text");
/** @type {Map<string, string>} */
const lexicon = new Map();
/** @type {{from: number, to: number} | null} */
let playing = null;
let chosenWord = "";
let timer = 0;
/** @type {Callee | null} */
let reader = null;

export const text = () => area.value;

/** Pairs of words and pronunciations that the user gave. */
export const pronunciations = () => [...lexicon];

/**
 * The place of written words in a text after `from`; null where they are not near.
 * @param {string} whole @param {string} words @param {number} from
 */
export function locate(whole, words, from) {
  const pattern = words.split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&"));
  const found = whole.slice(from, from + REACH).match(new RegExp(pattern.join("\\s+")));
  return found && { from: from + (found.index ?? 0), to: from + (found.index ?? 0) + found[0].length };
}

/** Mark the word that plays, and keep it in view. @param {{from: number, to: number} | null} place */
export function markPlaying(place) {
  if (playing?.from === place?.from && playing?.to === place?.to) return;
  playing = place;
  render();
  const [word] = byId("mirror").getElementsByClassName("word");
  if (!word) return;
  const [frame, box] = [byId("editor").getBoundingClientRect(), word.getBoundingClientRect()];
  if (box.top < frame.top || box.bottom > frame.bottom) byId("editor").scrollTop += box.top - frame.top - frame.height / 3;
}

function render() {
  const { value } = area;
  const { from, to } = playing ?? { from: 0, to: 0 };
  const word = playing ? [make("span", { className: "word" }, value.slice(from, to))] : [];
  byId("mirror").replaceChildren(value.slice(0, from), ...word, value.slice(to), "\n\u200b");
}

async function read() {
  if (!reader || !area.value.trim()) return;
  const asked = area.value;
  const found = await reader.call("ask", { readings: asked, lexicon: pronunciations() }).catch(() => null);
  if (!found || asked !== area.value) return; // Speak says what is wrong with the text
  byId("text-warning").textContent = found.warnings.join(" ");
  const seen = new Set();
  const buttons = [];
  for (const { written, read: spoken, phones } of found.words) {
    const word = written.replace(/^[^\p{L}\p{N}$£€]+|[^\p{L}\p{N}]+$/gu, "");
    if (!word || seen.has(word) || seen.size >= MAX_WORDS) continue;
    seen.add(word);
    const plain = spoken.replace(/[^\p{L}\p{N}]+$/u, "");
    const label = plain.toLowerCase() === word.toLowerCase() ? word : `${word} → ${plain}`;
    const button = make("button", { type: "button", textContent: label, title: phones.join(" · ") });
    button.dataset.word = word;
    button.setAttribute("aria-pressed", String(lexicon.has(word)));
    button.onclick = () => choose(word, lexicon.get(word) ?? phones.join(" "));
    buttons.push(button);
  }
  byId("readings").replaceChildren(...buttons);
}

/** @param {string} word @param {string} said */
function choose(word, said) {
  chosenWord = word;
  byId("say-label").textContent = `How “${word}” is said`;
  byId("say").value = said;
  byId("pronounce").hidden = false;
  byId("say").focus();
}

async function use() {
  const said = byId("say").value.trim();
  if (!said) return reset();
  await reader?.call("ask", { readings: chosenWord, lexicon: [[chosenWord, said]] }); // refuses what is no pronunciation
  lexicon.set(chosenWord, said);
  close();
}

function reset() {
  lexicon.delete(chosenWord);
  close();
}

// Leave the form; who uses the keyboard goes on at the word, which is drawn anew.
async function close() {
  await read();
  byId("pronounce").hidden = true;
  const words = /** @type {HTMLElement[]} */ ([...byId("readings").children]);
  (words.find(({ dataset }) => dataset.word === chosenWord) ?? area).focus();
}

/** @param {Callee} opened */
export function startReading(opened) {
  reader = opened;
  return read();
}

export function startTextField() {
  area.addEventListener("input", () => {
    playing = null;
    render();
    clearTimeout(timer);
    timer = setTimeout(read, WAIT_MS);
  });
  on("say-use", "click", use);
  on("say-reset", "click", reset);
  byId("say").addEventListener("keydown", (/** @type {KeyboardEvent} */ press) => {
    if (press.key !== "Enter" || press.ctrlKey) return;
    press.preventDefault();
    byId("say-use").click();
  });
  render();
}
