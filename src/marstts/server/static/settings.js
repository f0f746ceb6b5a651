// Text and settings are kept in the browser over a reload; recordings and keys are not.

import { byId } from "./dom.js";

const STORE = "marstts";
const FIELDS = ["text", "speed", "version", "dialogue", "seconds", "style-of", "cast", "pauses", "lexicon", "top-p", "continuation"];
let kept = {};

export function restore() {
  try {
    kept = JSON.parse(localStorage.getItem(STORE)) ?? {};
  } catch {
    kept = {}; // blocked, or written by something else
  }
  for (const id of FIELDS) if (typeof kept[id] === "string") byId(id).value = kept[id];
  return typeof kept.voice === "string" ? kept.voice : null;
}

export function keep(voice) {
  kept = { ...Object.fromEntries(FIELDS.map((id) => [id, byId(id).value])), voice: voice ?? kept.voice };
  try {
    localStorage.setItem(STORE, JSON.stringify(kept));
  } catch {
    // the page works without
  }
}
