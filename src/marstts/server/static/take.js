// Takes: speech that was generated here, each with its row in the list: play, seek, download, remove, repair.
//
// A take has the parts of one text, or of a whole book, one after the other.

import * as api from "./api.js";
import { srt } from "./captions.js";
import { attempt, byId, clock, iconButton, make, save, setIcon } from "./dom.js";
import { locate, markPlaying, turnTo } from "./editor.js";
import { player, RATE, Sound } from "./player.js";
import { keepPlace } from "./reading.js";
import { wavFile } from "./wav.js";

const CHARACTERS_PER_SECOND = 15; // about
const PART_PAUSE_SECONDS = 0.8;
const MP3_SAMPLES = 120 * RATE; // encoded by one request
const STATES = { making: " · generating", stopped: " · stopped", failed: " · cut off", done: "" };

let current = null; // the take that was played last

export const playingTake = () => (current?.isPlaying ? current : null);

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

export class Take {
  // `speech`: voice, seed, speed; `parts`: the texts, each spoken from its character `from` on; `voiceName`: for people;
  // `book`: whose parts they are, if any, from number `first` on.
  constructor(speech, parts, voiceName, book = null, first = 0) {
    const copies = parts.map((part) => ({ ...part })); // they can be edited meanwhile
    Object.assign(this, { speech, parts: copies, voiceName, book, first, sound: new Sound(), words: [], sentences: [] });
    Object.assign(this, { position: 0, cursor: 0, warnings: [], part: 0, partStart: 0, playingPart: null, reached: null });
    this.request = new AbortController();
    this.state = "making";
    this.build();
  }

  // Generate, and play from the first bytes on. Resolves when all is generated.
  async generate() {
    this.play();
    try {
      for (this.part = 0; this.part < this.parts.length; this.part++) await this.generatePart();
      if (this.sound.length === 0) throw new Error(this.warnings.join(" "));
      this.state = "done";
    } catch (error) {
      this.state = error.name === "AbortError" ? "stopped" : "failed";
      if (error.name !== "AbortError") throw error;
    } finally {
      this.sound.isComplete = true;
      if (this.sound.length === 0) this.remove();
      this.drawFlaws();
      this.update();
    }
  }

  // Generate the next part. In a book, wait while the server is busy, and pass over a part that cannot be spoken.
  async generatePart() {
    const { signal } = this.request;
    const ask = () => api.speak(this.speechOf(this.part), signal);
    if (this.part > 0 && this.sound.length > 0) this.sound.pushSilence(PART_PAUSE_SECONDS);
    Object.assign(this, { cursor: this.parts[this.part].from ?? 0, partStart: this.sound.seconds });
    try {
      for await (const event of await (this.parts.length > 1 ? api.patiently(ask, signal) : ask())) this.receive(event);
    } catch (error) {
      if (this.parts.length === 1 || error.status !== 400) throw error;
      this.warnings.push(`${this.parts[this.part].title}: ${error.message}`);
    }
  }

  receive(event) {
    if (event.error) throw new Error(event.error.message);
    const { sentence_number: number } = event;
    if (number) this.noteSentence(number);
    const sentence = this.sentences.at(-1);
    if (event.flawed) Object.assign(sentence, { flaw: event.warning });
    else if (event.warning) this.warnings.push(event.warning);
    this.words.push(...this.placed(event.words, sentence, this.partStart, this.cursor));
    this.cursor = this.words.at(-1)?.part === this.part ? (this.words.at(-1).next ?? this.cursor) : this.cursor;
    if (event.audio) this.sound.push(bytesOf(event.audio));
    if (sentence) sentence.to = this.sound.length;
    this.update();
    if (event.flawed) this.drawFlaws();
  }

  // The audio that follows is that of a sentence of the part that is generated.
  noteSentence(number) {
    const { part, sentences, speech } = this;
    const last = sentences.at(-1);
    if (last?.part === part && last.number === number) return;
    const from = this.sound.length;
    sentences.push({ part, number, from, to: from, seed: speech.seed, flaw: "" });
  }

  // Words of an event: their seconds in the whole, and their places in the text of their part.
  placed(words, sentence, offset, cursor) {
    const part = sentence?.part ?? this.part;
    let next = cursor;
    return (words ?? []).map(({ word: written, start_time: start, end_time: end }) => {
      const place = locate(this.parts[part].text, written, next);
      if (place) next = place.to;
      return { written, start: start + offset, end: end + offset, place, part, sentence, next };
    });
  }

  // Say a flawed sentence again, with another seed, in the place of what was said.
  async again(sentence) {
    const speech = { ...this.speechOf(sentence.part), seed: (sentence.seed + 1) % 2 ** 32 };
    const said = new Sound();
    const heard = [];
    let flaw = "";
    this.request = new AbortController();
    for await (const event of await api.speak(speech, this.request.signal, sentence.number)) {
      if (event.error) throw new Error(event.error.message);
      if (event.flawed) flaw = event.warning;
      heard.push(...(event.words ?? []));
      if (event.audio) said.push(bytesOf(event.audio));
    }
    this.exchange(sentence, said.samples(), heard);
    Object.assign(sentence, { seed: speech.seed, flaw });
    this.drawFlaws();
    this.play(sentence.from / RATE);
  }

  // Put other samples and words in the place of those of a sentence; what follows moves.
  exchange(sentence, samples, heard) {
    this.pause();
    const { from, to } = sentence;
    const shift = samples.length - (to - from);
    const index = this.sentences.indexOf(sentence);
    const isOf = (word) => word.sentence === sentence;
    const at = this.words.findIndex((word) => this.sentences.indexOf(word.sentence) >= index);
    const first = this.words.find(isOf)?.place;
    const later = at < 0 ? [] : this.words.slice(at).filter((word) => !isOf(word));
    for (const word of later) Object.assign(word, { start: word.start + shift / RATE, end: word.end + shift / RATE });
    const fresh = this.placed(heard, sentence, from / RATE, first?.from ?? this.parts[sentence.part].from ?? 0);
    this.words = [...(at < 0 ? this.words : this.words.slice(0, at)), ...fresh, ...later];
    this.sound.replace(from, to, samples);
    sentence.to += shift;
    for (const other of this.sentences.slice(index + 1)) Object.assign(other, { from: other.from + shift, to: other.to + shift });
  }

  speechOf(part) {
    const { text, from } = this.parts[part];
    return { ...this.speech, text: text.slice(from ?? 0) };
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
    const shown = byId("text").value;
    const isThere = ({ place, part }) =>
      place && this.parts[part].text === shown && place.from <= index && index <= place.to;
    const word = this.words.find(isThere);
    if (word) this.play(word.start);
  }

  // Whether the text in the field is one of its parts.
  get matchesText() {
    const shown = byId("text").value;
    return this.parts.some(({ text }) => text === shown);
  }

  follow(position, isPlaying) {
    this.position = position;
    if (isPlaying) this.turnPage();
    this.notePlace(isPlaying);
    const word = isPlaying && this.matchesText && this.words.findLast(({ start }) => start <= position);
    markPlaying(word && this.parts[word.part].text === byId("text").value ? word.place : null);
    byId("editor").classList.toggle("playing", isPlaying && this.matchesText);
    this.update(isPlaying);
    document.dispatchEvent(new Event("playing"));
  }

  // Show the part of the book that plays.
  turnPage() {
    const part = this.sentences.findLast(({ from }) => from <= this.position * RATE)?.part;
    if (!this.book || part === undefined || part === this.playingPart) return;
    const last = this.playingPart === null ? null : this.parts[this.playingPart].text;
    this.playingPart = part;
    turnTo(this.book, part + this.first, last);
  }

  // Keep the place that the reading of a book has reached, so that it can go on after an interruption.
  notePlace(isPlaying) {
    const isOver = !isPlaying && this.position === 0 && this.state === "done"; // the player is back at the beginning
    if (this.book && isOver) keepPlace((this.reached = null));
    if (!this.book || !isPlaying) return;
    const sentence = this.sentences.findLast(({ from }) => from <= this.position * RATE);
    const word = this.words.find((one) => one.sentence === sentence && one.place);
    const from = word?.place.from ?? this.parts[sentence?.part]?.from; // without word times: the beginning of the part
    const reached = `${sentence?.part} ${from}`;
    if (!sentence || reached === this.reached) return;
    this.reached = reached;
    keepPlace(this.book, sentence.part + this.first, from);
  }

  // The flawed sentences, each with a button that says it again once all is generated.
  drawFlaws() {
    const rows = this.sentences.filter(({ flaw }) => flaw).map((sentence) => {
      const again = make("button", { type: "button", className: "small", textContent: "Say it again" });
      again.disabled = this.state === "making";
      again.onclick = () => {
        again.disabled = true;
        return attempt(() => this.again(sentence)).finally(() => (again.disabled = false));
      };
      return make("div", {}, make("span", { className: "note warning", textContent: sentence.flaw }), again);
    });
    this.flaws.replaceChildren(...rows);
  }

  // All of it as an MP3 file, encoded in pieces by the server.
  async mp3File() {
    const pieces = [];
    for (let at = 0; at < this.sound.length; at += MP3_SAMPLES) {
      const samples = this.sound.samples(at, MP3_SAMPLES);
      pieces.push(await api.patiently(() => api.mp3(samples)));
      this.mp3.textContent = `MP3 ${Math.min(100, Math.round((100 * (at + samples.length)) / this.sound.length))} %`;
    }
    return new Blob(pieces, { type: "audio/mpeg" });
  }

  async saveMp3() {
    this.mp3.disabled = true;
    try {
      save(await this.mp3File(), this.fileName("mp3"));
    } finally {
      this.mp3.textContent = "MP3";
      this.mp3.disabled = false;
    }
  }

  get title() {
    return this.book ? `${this.book.title}, ${this.parts.length} parts` : this.parts[0].text;
  }

  build() {
    const { speech, title, voiceName } = this;
    const button = (label, act) => {
      const props = { type: "button", className: "small", textContent: label, onclick: () => attempt(act) };
      return make("button", { ...props, title: `Download ${label}` });
    };
    this.button = iconButton("play", "Play", () => (this.isPlaying ? this.pause() : this.play()), "play");
    this.bar = make("input", { type: "range", min: 0, step: 0.01, value: 0, ariaLabel: "Position in seconds" });
    this.bar.oninput = () => this.seek(Number(this.bar.value));
    this.time = make("span", { className: "note time" });
    this.progress = make("span", {});
    this.warning = make("p", { className: "note warning" });
    this.flaws = make("div", { className: "flaws" });
    this.mp3 = button("MP3", () => this.saveMp3());
    this.wav = button("WAV", () => save(wavFile(this.sound.pieces, RATE), this.fileName("wav")));
    this.srt = button("SRT", () => save(new Blob([srt(this.words)], { type: "text/plain" }), this.fileName("srt")));
    const speed = speech.speed === 1 ? "" : ` · ${speech.speed}×`;
    this.row = make("li", {},
      this.button,
      make("div", { className: "about" },
        make("p", { className: "said", textContent: title, title }),
        make("p", { className: "note" }, `${voiceName} · version ${speech.seed + 1}${speed}`, this.progress)),
      iconButton("close", "Remove this take", () => this.remove()),
      make("div", { className: "row" }, this.bar, this.time),
      make("div", { className: "row" }, this.mp3, this.wav, this.srt),
      this.warning,
      this.flaws,
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
    const length = this.parts.reduce((sum, { text }) => sum + text.length, 0);
    const expected = isMade ? 0 : length / CHARACTERS_PER_SECOND / this.speech.speed;
    this.bar.max = Math.max(this.sound.seconds, expected);
    this.bar.value = this.position;
    this.time.textContent = clock(this.position) + (isMade ? ` / ${clock(this.sound.seconds)}` : "");
    const part = !isMade && this.book ? ` part ${Math.min(this.part + 1, this.parts.length)} of ${this.parts.length}` : "";
    this.progress.textContent = STATES[this.state] + part;
    this.progress.className = isMade ? "" : "making";
    this.warning.textContent = this.warnings.join(" ");
    this.wav.disabled = !isMade;
    this.mp3.disabled = !isMade || this.mp3.textContent !== "MP3";
    this.srt.disabled = !isMade || this.words.length === 0;
  }

  remove() {
    this.stop();
    this.row.remove();
    byId("no-takes").hidden = byId("takes").children.length > 0;
  }

  fileName(suffix) {
    const start = this.title.toLowerCase().match(/[\p{L}\p{N}]+/gu)?.slice(0, 4).join("-") ?? "speech";
    return `${start}-${this.voiceName}-${this.speech.seed + 1}.${suffix}`;
  }
}
