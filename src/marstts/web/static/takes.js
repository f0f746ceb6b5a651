// @ts-check
// The takes: what was spoken, with its words, to play, seek and download.

import { srt } from "./captions.js";
import { attempt, byId, clock, iconButton, make, save, setIcon } from "./dom.js";
import { player, Sound } from "./player.js";
import { locate, markPlaying, text } from "./text-field.js";
import { wavFile } from "./wav.js";

/** @import {Chunk} from "./speech.js" */
/** @import {Word} from "./types.js" */

export class Take {
  position = 0;
  isMaking = true;
  /** @type {Word[][]} */
  sentences = [];
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
    if (words.length) this.sentences[sentence] = words;
    if (warning) this.warnings.push(warning);
    if (isFirst && samples.length) attempt(() => this.play(0));
    this.update();
  }

  finish() {
    this.isMaking = false;
    this.sound.complete();
    this.update();
  }

  get words() {
    return this.sentences.flat();
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
    let from = 0;
    let place = null;
    for (const word of this.words) {
      if (word.start > position) break;
      place = locate(word.written, from);
      if (place) from = place.to;
    }
    return place;
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
    this.wav = download("WAV", () => wavFile([this.sound.integers], this.sound.rate));
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
    this.row.remove();
    byId("no-takes").hidden = byId("takes").children.length > 0;
  }
}
