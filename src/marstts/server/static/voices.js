// The list of voices: choose, preview, rename, delete with undo.

import * as api from "./api.js";
import { attempt, byId, iconButton, make, setIcon, show } from "./dom.js";
import { player, Sound } from "./player.js";

const PREVIEW = "Hello. This is how I sound.";
const UNDO_MS = 8000;
const NAME_CHARACTERS = 64;

let voices = [];
let changed = () => {};
const leaving = new Map(); // voices that are deleted unless that is undone: id -> timer

export const chosenVoice = () => voices.find(({ id }) => byId(`voice-${id}`)?.checked) ?? null;

// Read the voices again; `chosen` is the id of the one to choose.
export async function fillVoices(chosen) {
  const found = (await api.listVoices()).filter((voice) => !voice.description?.startsWith("alias"));
  const isOwn = (voice) => !voice.description;
  voices = [...found.filter(isOwn).reverse(), ...found.filter((voice) => !isOwn(voice))];
  draw(chosen);
}

function draw(chosen = chosenVoice()?.id) {
  const shown = voices.filter(({ id }) => !leaving.has(id));
  const wanted = shown.some(({ id }) => id === chosen) ? chosen : shown.find((voice) => voice.description)?.id;
  byId("voice-list").replaceChildren(...shown.map((voice) => rowOf(voice, voice.id === wanted)));
  changed();
}

function rowOf(voice, isChosen) {
  const [about, source = ""] = (voice.description ?? "").split("; ");
  const own = voice.kind === "deep" ? "cloned, with its words" : "cloned";
  const radio = make("input", { type: "radio", name: "voice", id: `voice-${voice.id}`, value: voice.id });
  radio.checked = isChosen;
  radio.onchange = () => changed();
  const text = make("span", {},
    make("b", { textContent: voice.name }), make("span", { className: "note", textContent: about || own }));
  const preview = iconButton("play", `Preview ${voice.name}`, () => attempt(() => hear(voice, preview)));
  const row = make("div", { className: "voice", title: source || voice.consent || "" }, make("label", {}, radio, text));
  if (!voice.description) {
    row.append(iconButton("edit", `Rename ${voice.name}`, () => askName(voice, row)));
    row.append(iconButton("delete", `Delete ${voice.name}`, () => remove(voice)));
  }
  row.append(preview);
  return row;
}

async function hear(voice, button) {
  if (button.sound && player.sound === button.sound) return player.stop();
  const sound = (button.sound = new Sound());
  player.play(sound, 0, (_, isPlaying) =>
    setIcon(button, isPlaying ? "pause" : "play", `${isPlaying ? "Stop" : "Preview"} ${voice.name}`));
  try {
    for await (const event of await api.speak({ text: PREVIEW, voice: voice.id, seed: 0, speed: 1 })) {
      if (event.error) throw new Error(event.error.message);
      if (event.audio) sound.push(Uint8Array.from(atob(event.audio), (letter) => letter.charCodeAt(0)));
    }
  } finally {
    sound.isComplete = true;
  }
}

// A field for another name in the place of a row: Enter renames, Escape leaves all as it was.
function askName(voice, row) {
  const properties = { value: voice.name, maxLength: NAME_CHARACTERS, required: true, autocomplete: "off" };
  const field = make("input", { ...properties, ariaLabel: `New name of ${voice.name}` });
  const form = make("form", { className: "rename" }, field, make("button", { textContent: "Rename" }));
  const leave = () => {
    draw();
    focusOn(voice);
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    attempt(async () => {
      const renamed = await api.renameVoice(voice.id, field.value.trim());
      await fillVoices(chosenVoice()?.id ?? voice.id);
      focusOn(renamed);
      show(`The voice ${voice.name} is called ${renamed.name} now.`);
    });
  };
  form.onkeydown = (press) => {
    if (press.key !== "Escape") return;
    press.stopPropagation(); // it stops no speech
    leave();
  };
  form.append(iconButton("close", "Leave the name as it is", leave));
  for (const child of row.children) child.hidden = true; // not removed: the voice stays chosen
  row.append(form);
  field.select();
}

function focusOn(voice) {
  document.querySelector(`#voice-${voice.id}`)?.closest(".voice").querySelector("button").focus();
}

function remove(voice) {
  const timer = setTimeout(() => attempt(() => removeNow(voice.id)), UNDO_MS);
  leaving.set(voice.id, timer);
  draw();
  show(`The voice ${voice.name} was deleted.`, {
    undone: () => {
      clearTimeout(timer);
      leaving.delete(voice.id);
      draw(voice.id);
    },
  });
}

async function removeNow(id) {
  leaving.delete(id);
  voices = voices.filter((voice) => voice.id !== id);
  try {
    await api.deleteVoice(id);
  } catch (error) {
    await fillVoices();
    throw error;
  }
}

// `onChange` is called when another voice is chosen.
export function startVoices(onChange) {
  changed = onChange;
  addEventListener("pagehide", () => [...leaving.keys()].forEach((id) => api.deleteVoice(id)));
}
