// The text field, and behind it the same text with marks: the word that plays, and words that are read otherwise.

import * as api from "./api.js";
import { attempt, byId, make, on, onDrop, onFile, show } from "./dom.js";
import { keepBook, keptBook, placeIn } from "./reading.js";

const WAIT_MS = 400; // after the last letter, before the readings are asked for
const REACH = 500; // characters in which the next word is searched

const area = byId("text");
const LIMIT = Number(area.dataset.limit); // characters that one request can speak
let book = null; // title and parts of a text that has several
let shown = 0; // number of the part in the field, from 0
let dividing = null; // resolves when a text that was too long is in parts
let otherwise = [];
let playing = null;
let timer = 0;
let asking = null;

// The place of the words after `from`; they may be written with other white space. null where they are not near.
export function locate(text, words, from) {
  const pattern = words.split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\\/-]/g, "\\$&"));
  const found = text.slice(from, from + REACH).match(new RegExp(pattern.join("\\s+")));
  return found && { from: from + found.index, to: from + found.index + found[0].length };
}

// Whether one request cannot speak a text: the server counts characters, a string's length counts some of them twice.
const isTooLong = (text) => text.length > LIMIT && [...text].length > LIMIT;

function render() {
  const marks = otherwise.map((place) => ({ ...place, name: "otherwise" }));
  if (playing) marks.push({ ...playing, name: "word" });
  const text = area.value;
  const cuts = [...new Set([0, text.length, ...marks.flatMap(({ from, to }) => [from, to])])].sort((a, b) => a - b);
  const pieces = cuts.slice(1).map((to, i) => {
    const names = marks.filter((mark) => mark.from <= cuts[i] && mark.to >= to).map((mark) => mark.name);
    const piece = text.slice(cuts[i], to);
    return names.length ? make("span", { className: names.join(" ") }, piece) : piece;
  });
  byId("mirror").replaceChildren(...pieces, "\n\u200b"); // the field has an empty last line, too
}

// Mark the word that plays, {from, to} or null, and keep it in view.
export function markPlaying(place) {
  if (playing?.from === place?.from && playing?.to === place?.to) return;
  playing = place;
  render();
  const [word] = byId("mirror").getElementsByClassName("word");
  if (!word) return;
  const [frame, box] = [byId("editor").getBoundingClientRect(), word.getBoundingClientRect()];
  const isInView = box.top >= frame.top && box.bottom <= frame.bottom;
  if (!isInView) byId("editor").scrollTop += box.top - frame.top - frame.height / 3;
}

function setText(text) {
  area.value = text;
  byId("editor").scrollTop = 0;
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

async function askReadings() {
  asking?.abort();
  asking = new AbortController();
  const text = area.value;
  if (!text.trim() || isTooLong(text)) return;
  const found = await api.readings(text, asking.signal).catch((error) => {
    if (error.status === 401) throw error;
    return { readings: [], warnings: [] }; // Speak says what is wrong with the text
  });
  let from = 0;
  otherwise = [];
  const rows = found.readings.map(({ written, read }) => {
    const place = locate(text, written, from);
    if (place) {
      otherwise.push(place);
      from = place.to;
    }
    return make("div", {}, make("dt", { textContent: written }), make("dd", { textContent: read }));
  });
  byId("readings").replaceChildren(...rows);
  byId("text-warning").textContent = found.warnings.join(" ");
  render();
}

function changed() {
  otherwise = [];
  playing = null;
  byId("count").textContent = `${area.value.length} of ${LIMIT} characters`;
  if (isTooLong(area.value)) dividing ??= attempt(divide).finally(() => (dividing = null));
  else if (book) book.parts[shown].text = area.value;
  render();
  clearTimeout(timer);
  timer = setTimeout(() => {
    keepBook(book, shown);
    attempt(askReadings);
  }, WAIT_MS);
}

async function openFile(file) {
  const { title, parts } = await api.readParts(file);
  openParts(title, parts, 0);
}

function openParts(title, parts, index) {
  book = parts.length > 1 ? { title, parts } : null;
  byId("part").replaceChildren(...parts.map((part, i) => new Option(part.title, i)));
  byId("book-title").textContent = title;
  byId("speak-all").textContent = `Speak all ${parts.length} parts`;
  byId("book").hidden = !book;
  showPart(index, parts);
  keepBook(book, shown);
  offerContinue();
}

// Offer to read on where the reading of the book was interrupted.
function offerContinue() {
  const place = book && placeIn(book);
  byId("continue").hidden = !place;
  if (place) byId("continue").textContent = `Continue in part ${place.part + 1}`;
}

function showPart(index, parts = book.parts) {
  shown = index;
  byId("part").value = String(index);
  setText(parts[index].text);
}

function closeBook() {
  book = null;
  keepBook(null);
  byId("book").hidden = true;
}

// Put a text that one request cannot speak into parts, as if it came from a file; in a book, in the place of its part.
async function divide() {
  area.readOnly = true;
  try {
    const name = book ? book.parts[shown].title : "Your text";
    const { title, parts } = await api.readParts(new Blob([area.value]), name);
    const all = book ? book.parts.toSpliced(shown, 1, ...parts) : parts;
    openParts(book ? book.title : title, all, book ? shown : 0);
    if (parts.length > 1) show(`The text has more than ${LIMIT} characters, so it is in ${parts.length} parts now.`);
  } finally {
    area.readOnly = false;
  }
}

// What is spoken: the text in the field, and the whole book, if there is one. Waits until a long text is divided.
export async function textsToSpeak() {
  await dividing;
  return { text: area.value, book };
}

// Show another part of a book, if its reader has left the field as it is.
export function turnTo(readBook, index, lastText) {
  if (book === readBook && index !== shown && (lastText === null || area.value === lastText)) showPart(index);
}

export function startEditor() {
  area.addEventListener("input", changed);
  area.addEventListener("paste", () => {
    if (area.selectionStart === 0 && area.selectionEnd === area.value.length) closeBook(); // another text
  });
  on("part", "change", () => showPart(Number(byId("part").value)));
  on("close-book", "click", closeBook);
  onDrop("editor", openFile);
  onFile("open", "text-file", openFile);
  document.addEventListener("place", offerContinue);
  const kept = keptBook();
  if (kept) openParts(kept.title, kept.parts, kept.shown);
  changed();
}
