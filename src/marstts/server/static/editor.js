// The text field, and behind it the same text with marks: the word that plays, and words that are read otherwise.

import * as api from "./api.js";
import { attempt, byId, make, onDrop, onFile } from "./dom.js";

const WAIT_MS = 400; // after the last letter, before the readings are asked for
const REACH = 500; // characters in which the next word is searched

const area = byId("text");
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

export function setText(text) {
  area.value = text.slice(0, area.maxLength);
  byId("editor").scrollTop = 0;
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

async function askReadings() {
  asking?.abort();
  asking = new AbortController();
  const text = area.value;
  if (!text.trim()) return;
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
  byId("count").textContent = `${area.value.length} of ${area.maxLength} characters`;
  render();
  clearTimeout(timer);
  timer = setTimeout(() => attempt(askReadings), WAIT_MS);
}

async function openFile(file) {
  const { title, parts } = await api.readParts(file);
  const select = byId("part");
  select.replaceChildren(...parts.map((part, i) => new Option(part.title, i)));
  select.onchange = () => setText(parts[select.value].text);
  byId("book-title").textContent = title;
  byId("book").hidden = parts.length < 2;
  setText(parts[0].text);
}

export function startEditor() {
  area.addEventListener("input", changed);
  onDrop("editor", openFile);
  onFile("open", "text-file", openFile);
  changed();
}
