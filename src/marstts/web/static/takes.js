// @ts-check
// The takes: what was spoken, with its words, to play, seek and download.

import { srt } from "./captions.js";
import { attempt, byId, clock, iconButton, make, save, setIcon } from "./dom.js";
import { player, Sound } from "./player.js";
import { locate, markPlaying, text } from "./text-field.js";

/** @import {Chunk} from "./speech.js" */
/** @import {Word} from "./types.js" */

/** @typedef {{from: number, to: number}} Place */

export class Take {
  position = 0;
  isMaking = true;
  /** @type {{words: Word[], places: (Place | null)[], end: number}[]} */
  sentences = []; // `end`: where the next one is looked for in the text
  /** @type {string[]} */
  warnings = [];

  /** @param {string} said @param {string} voice @param {number} version @param {number} rate */
  constructor(said, voice, version, rate) {
    this.said = said;
    this.voice = voice;
    this.version = version;
    this.sound = new Sound(rate);
    this.row = this.build();
    byId("takes").prepend(this.row);
    byId("no-takes").hidden = true;
    this.update();
  }

  /** @param {Chunk} chunk */
  push({ samples, words, sentence, warning }) {
    const isFirst = !this.sound.length;
    this.sound.push(samples);
    if (words.length) this.sentences[sentence] = this.located(words, sentence);
    if (warning) this.warnings.push(warning);
    if (isFirst && samples.length) attempt(() => this.play(0));
    this.update();
  }

  finish() {
    this.isMaking = false;
    this.sound.complete();
    if (!this.sound.length) this.remove(); // stopped or refused before the first audio
    this.update();
  }

  get words() {
    return this.sentences.flatMap(({ words }) => words);
  }

  /** Where the words of a sentence are in the text. @param {Word[]} words @param {number} sentence */
  located(words, sentence) {
    let end = this.sentences.findLast((found, number) => found && number < sentence)?.end ?? 0;
    const places = words.map(({ written }) => {
      const place = locate(this.said, written, end);
      if (place) end = place.to;
      return place;
    });
    return { words, places, end };
  }

  get isPlaying() {
    return player.sound === this.sound;
  }

  play(from = this.position) {
    return player.play(this.sound, from, (position, isPlaying) => this.follow(position, isPlaying));
  }

  /** @param {number} position @param {boolean} isPlaying */
  follow(position, isPlaying) {
    this.position = position;
    markPlaying(isPlaying && text() === this.said ? this.placeAt(position) : null);
    this.update();
    document.dispatchEvent(new Event("playing"));
  }

  /** The place in the text of the word that is said at a second. @param {number} position */
  placeAt(position) {
    const sentence = this.sentences.findLast((found) => found && found.words[0].start <= position);
    if (!sentence) return null;
    return sentence.places[sentence.words.findLastIndex(({ start }) => start <= position)];
  }

  /** @param {string} suffix */
  fileName(suffix) {
    const start = this.said.toLowerCase().match(/[\p{L}\p{N}]+/gu)?.slice(0, 4).join("-") ?? "speech";
    return `${start}-${this.voice}-${this.version}.${suffix}`;
  }

  build() {
    const download = (/** @type {string} */ label, /** @type {() => Blob} */ file) => {
      const props = { type: "button", className: "small", textContent: label, title: `Download ${label}` };
      return make("button", { ...props, onclick: () => save(file(), this.fileName(label.toLowerCase())) });
    };
    this.button = iconButton("play", "Play", () => attempt(() => (this.isPlaying ? player.stop() : this.play())), "play");
    this.bar = make("input", { type: "range", min: 0, step: 0.01, value: 0, ariaLabel: "Position in seconds" });
    this.bar.oninput = () => attempt(() => this.seek(Number(this.bar.value)));
    this.time = make("span", { className: "note time" });
    this.wav = download("WAV", () => this.sound.wav());
    this.srt = download("SRT", () => new Blob([srt(this.words)], { type: "text/plain" }));
    this.warning = make("p", { className: "note warning" });
    const about = make("div", { className: "about" },
      make("p", { className: "said", textContent: this.said, title: this.said }),
      make("p", { className: "note", textContent: `${this.voice} · version ${this.version}` }));
    return make("li", {}, this.button, about, iconButton("close", "Remove this take", () => this.remove()),
      make("div", { className: "row" }, this.bar, this.time), make("div", { className: "row" }, this.wav, this.srt),
      this.warning);
  }

  /** @param {number} seconds */
  async seek(seconds) {
    this.position = seconds;
    if (this.isPlaying) await this.play(seconds);
    this.update();
  }

  update() {
    const { isPlaying } = this;
    if (this.button.ariaPressed !== String(isPlaying)) {
      setIcon(this.button, isPlaying ? "pause" : "play", isPlaying ? "Pause" : "Play");
      this.button.ariaPressed = String(isPlaying);
    }
    this.bar.max = String(Math.max(this.sound.seconds, 0.01));
    this.bar.value = String(this.position);
    this.time.textContent = `${clock(this.position)} / ${clock(this.sound.seconds)}${this.isMaking ? " …" : ""}`;
    this.warning.textContent = this.warnings.join(" ");
    this.wav.disabled = this.isMaking;
    this.srt.disabled = this.isMaking || !this.words.length;
  }

  remove() {
    if (this.isPlaying) player.stop();
    const next = this.row.nextElementSibling ?? this.row.previousElementSibling;
    const isFocused = this.row.contains(document.activeElement);
    this.row.remove();
    if (isFocused) (next?.querySelector("button") ?? byId("speak")).focus(); // for who uses the keyboard
    byId("no-takes").hidden = byId("takes").children.length > 0;
  }
}
