// The page: choose a voice, type, listen, download; record, clone. This module connects the others.

import * as api from "./api.js";
import { startClone } from "./clone.js";
import { attempt, byId, on, show } from "./dom.js";
import { startEditor, textsToSpeak } from "./editor.js";
import { player } from "./player.js";
import { placeIn } from "./reading.js";
import { keep, restore } from "./settings.js";
import { playingTake, Take } from "./take.js";
import { chosenVoice, fillVoices, startVoices } from "./voices.js";

let take = null; // the last one that was generated

function speechFields() {
  return {
    voice: chosenVoice()?.id ?? "",
    seed: Number(byId("version").value) - 1,
    speed: Number(byId("speed").value),
    settings: moreSettings(),
  };
}

// "Anna=emma, Tom=ross" as an object; `read` makes a value of what is behind the sign.
function pairs(id, read = (value) => value) {
  const stated = byId(id).value.split(",").filter((pair) => pair.includes("="));
  return Object.fromEntries(stated.map((pair) => {
    const place = pair.indexOf("=");
    return [pair.slice(0, place).trim(), read(pair.slice(place + 1).trim())];
  }));
}

// Fields of a request for what was chosen under "More settings".
function moreSettings() {
  const fields = {
    dialogue: byId("dialogue").value.trim(),
    seconds: byId("seconds").value === "" ? "" : Number(byId("seconds").value),
    style_of: byId("style-of").value.trim(),
    voices: pairs("cast"),
    pauses: pairs("pauses", Number),
    lexicon: pairs("lexicon"),
    top_p: byId("top-p").value === "" ? "" : Number(byId("top-p").value),
    continuation: byId("continuation").value,
    paper: byId("paper").checked || "",
  };
  if (fields.seconds !== "") fields.speed = 1;
  const isStated = (value) => value !== "" && (typeof value !== "object" || Object.keys(value).length > 0);
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => isStated(value)));
}

// Speak the text in the field, or all parts of the book; `goesOn`: from where its reading was interrupted.
async function speak(isWhole = false, goesOn = false) {
  if (!byId("speech-form").reportValidity()) return;
  if (!chosenVoice()) throw new Error("Choose a voice first.");
  const { text, book } = await textsToSpeak();
  take?.stop();
  show("");
  const whole = isWhole ? book : null;
  const { part: first, from } = (goesOn && placeIn(whole)) || { part: 0, from: 0 };
  const parts = whole?.parts.slice(first).map((part, i) => ({ ...part, from: i ? 0 : from }));
  take = new Take(speechFields(), parts ?? [{ text }], chosenVoice().name, whole, first);
  showStop();
  try {
    await take.generate();
  } finally {
    showStop();
  }
}

function anotherVersion() {
  byId("version").value = String((Number(byId("version").value) % 2 ** 32) + 1);
  changed();
  return speak();
}

function stop() {
  take?.request.abort();
  player.stop();
  showStop();
}

function showStop() {
  byId("stop").hidden = !player.sound && take?.state !== "making";
}

// Show what was chosen, and keep it.
function changed() {
  const voice = chosenVoice();
  byId("speed-value").textContent = `${Number(byId("speed").value).toFixed(2)}×`;
  byId("chosen").textContent = voice ? `with the voice ${voice.name}` : "";
  const { curl, python } = api.asCode({ ...speechFields(), text: byId("text").value });
  byId("curl").textContent = curl;
  byId("python").textContent = python;
  keep(voice?.id);
}

const voice = restore();
startEditor();
startVoices(changed);
startClone();
on("key-form", "submit", async () => {
  api.setKey(byId("key").value);
  await fillVoices(voice);
  byId("key-form").hidden = true;
  show("");
});
on("mix-form", "submit", async () => {
  const mixed = await api.mixVoices(byId("mix-name").value.trim(), pairs("shares", Number));
  await fillVoices(mixed.id);
  show(`The voice ${mixed.name} can speak now.`);
});
on("speech-form", "submit", () => speak());
on("speak-all", "click", () => speak(true));
on("continue", "click", () => speak(true, true));
on("speech-form", "input", changed);
on("stop", "click", stop);
on("again", "click", anotherVersion);
on("text", "click", () => {
  const played = playingTake();
  if (played?.matchesText) played.playFromCharacter(byId("text").selectionStart);
});
document.addEventListener("playing", showStop);
document.addEventListener("keydown", (press) => {
  if (press.key === "Enter" && (press.ctrlKey || press.metaKey)) {
    press.preventDefault();
    attempt(speak);
  }
  if (press.key === "Escape") stop();
});
attempt(() => fillVoices(voice));
