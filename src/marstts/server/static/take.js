// Takes: speech that was generated here, each with its row in the list: play, seek, download, remove.

import * as api from "./api.js";
import { srt } from "./captions.js";
import { attempt, byId, clock, iconButton, make, save, setIcon } from "./dom.js";
import { locate, markPlaying } from "./editor.js";
import { player, RATE, Sound } from "./player.js";
import { wavFile } from "./wav.js";

const CHARACTERS_PER_SECOND = 15; // about
const STATES = { making: " · generating", stopped: " · stopped", failed: " · cut off", done: "" };

let current = null; // the take that was played last

export const playingTake = () => (current?.isPlaying ? current : null);

export class Take {
  // `speech`: text, voice, seed, speed; `voiceName`: for people; `again`: generates another version of it.
  constructor(speech, voiceName, again) {
    Object.assign(this, { speech, voiceName, again, sound: new Sound(), words: [], position: 0, cursor: 0, warnings: [] });
    this.request = new AbortController();
    this.state = "making";
    this.build();
  }

  // Generate, and play from the first bytes on. Resolves when all is generated.
  async generate() {
    this.play();
    try {
      for await (const event of await api.speak(this.speech, this.request.signal)) this.receive(event);
      this.state = "done";
    } catch (error) {
      this.state = error.name === "AbortError" ? "stopped" : "failed";
      if (error.name !== "AbortError") throw error;
    } finally {
      this.sound.isComplete = true;
      if (this.sound.length === 0) this.remove();
      this.update();
    }
  }

  receive(event) {
    if (event.error) throw new Error(event.error.message);
    if (event.warning) this.warnings.push(event.warning);
    for (const { word: written, start_time: start, end_time: end } of event.words ?? []) {
      const place = locate(this.speech.text, written, this.cursor);
      if (place) this.cursor = place.to;
      this.words.push({ written, start, end, place });
    }
    if (event.audio) this.sound.push(Uint8Array.from(atob(event.audio), (letter) => letter.charCodeAt(0)));
    this.update();
  }

  get isPlaying() {
    return player.sound === this.sound;
  }

  play(from = this.position) {
    current = this;
    player.play(this.sound, from, (position, isPlaying) => this.follow(position, isPlaying));
  }

  pause() {
    if (this.isPlaying) player.stop();
  }

  stop() {
    this.request.abort();
    this.pause();
  }

  seek(seconds) {
    this.position = seconds;
    if (this.isPlaying) this.play(seconds);
    else this.update();
  }

  // Play from the word at a character of the text, if there is one.
  playFromCharacter(index) {
    const word = this.words.find(({ place }) => place && place.from <= index && index <= place.to);
    if (word) this.play(word.start);
  }

  get matchesText() {
    return byId("text").value === this.speech.text;
  }

  follow(position, isPlaying) {
    this.position = position;
    const word = isPlaying && this.matchesText && this.words.findLast(({ start }) => start <= position);
    markPlaying(word ? word.place : null);
    byId("editor").classList.toggle("playing", isPlaying && this.matchesText);
    this.update(isPlaying);
    document.dispatchEvent(new Event("playing"));
  }

  build() {
    const { speech, voiceName } = this;
    const button = (label, act) => {
      const props = { type: "button", className: "small", textContent: label, onclick: () => attempt(act) };
      return make("button", { ...props, title: `Download ${label}` });
    };
    this.button = iconButton("play", "Play", () => (this.isPlaying ? this.pause() : this.play()), "play");
    this.bar = make("input", { type: "range", min: 0, step: 0.01, value: 0, ariaLabel: "Position in seconds" });
    this.bar.oninput = () => this.seek(Number(this.bar.value));
    this.time = make("span", { className: "note time" });
    this.progress = make("span", {});
    this.warning = make("span", {});
    const again = { type: "button", className: "small again", onclick: () => attempt(this.again) };
    this.flawed = make("p", { className: "note warning", hidden: true },
      this.warning, make("button", { ...again, textContent: "Say it again", title: "Generate another version" }));
    this.mp3 = button("MP3", async () => save(await api.mp3(speech), this.fileName("mp3")));
    this.wav = button("WAV", () => save(wavFile(this.sound.samples(), RATE), this.fileName("wav")));
    this.srt = button("SRT", () => save(new Blob([srt(this.words)], { type: "text/plain" }), this.fileName("srt")));
    const speed = speech.speed === 1 ? "" : ` · ${speech.speed}×`;
    this.row = make("li", {},
      this.button,
      make("div", { className: "about" },
        make("p", { className: "said", textContent: speech.text, title: speech.text }),
        make("p", { className: "note" }, `${voiceName} · version ${speech.seed + 1}${speed}`, this.progress)),
      iconButton("close", "Remove this take", () => this.remove()),
      make("div", { className: "row" }, this.bar, this.time),
      make("div", { className: "row" }, this.mp3, this.wav, this.srt),
      this.flawed,
    );
    byId("takes").prepend(this.row);
    byId("no-takes").hidden = true;
    this.update();
  }

  update(isPlaying = this.isPlaying) {
    const isMade = this.state !== "making";
    if (this.button.ariaPressed !== String(isPlaying)) {
      setIcon(this.button, isPlaying ? "pause" : "play", isPlaying ? "Pause" : "Play");
      this.button.ariaPressed = String(isPlaying);
    }
    const { length } = this.speech.text;
    const expected = isMade ? 0 : length / CHARACTERS_PER_SECOND / this.speech.speed;
    this.bar.max = Math.max(this.sound.seconds, expected);
    this.bar.value = this.position;
    this.time.textContent = clock(this.position) + (isMade ? ` / ${clock(this.sound.seconds)}` : "");
    this.progress.textContent = STATES[this.state];
    this.progress.className = isMade ? "" : "making";
    this.warning.textContent = `${this.warnings.join(" ")} `;
    this.flawed.hidden = this.warnings.length === 0;
    this.wav.disabled = !isMade;
    this.mp3.disabled = this.state !== "done";
    this.srt.disabled = !isMade || this.words.length === 0;
  }

  remove() {
    this.stop();
    this.row.remove();
    byId("no-takes").hidden = byId("takes").children.length > 0;
  }

  fileName(suffix) {
    const start = this.speech.text.toLowerCase().match(/[\p{L}\p{N}]+/gu)?.slice(0, 4).join("-") ?? "speech";
    return `${start}-${this.voiceName}-${this.speech.seed + 1}.${suffix}`;
  }
}
