// Sounds that arrive in pieces (24 kHz, 16 bit), and the one player of the page, which can play them meanwhile.

export const RATE = 24000;
const LEAD_SECONDS = 0.05;
const INTERVAL_MS = 30;
const AHEAD_SECONDS = 30; // a hidden page wakes seldom; more would fill the memory with a book
const PART_SECONDS = 10;

export class Sound {
  pieces = [];
  length = 0; // samples
  isComplete = false;
  rest = new Uint8Array(0);

  push(bytes) {
    const all = new Uint8Array(this.rest.length + bytes.length);
    all.set(this.rest);
    all.set(bytes, this.rest.length);
    const even = all.length - (all.length % 2);
    this.rest = all.slice(even);
    const samples = new Int16Array(all.buffer.slice(0, even));
    this.pieces.push(samples);
    this.length += samples.length;
  }

  get seconds() {
    return this.length / RATE;
  }

  pushSilence(seconds) {
    const samples = new Int16Array(Math.round(seconds * RATE));
    this.pieces.push(samples);
    this.length += samples.length;
  }

  // Samples from this one on, at most `count`.
  samples(first = 0, count = Infinity) {
    const joined = new Int16Array(Math.max(0, Math.min(this.length - first, count)));
    let at = -first;
    for (const piece of this.pieces) {
      if (at >= joined.length) break;
      const inside = piece.subarray(Math.max(0, -at), Math.min(piece.length, joined.length - at));
      if (at + piece.length > 0) joined.set(inside, Math.max(0, at));
      at += piece.length;
    }
    return joined;
  }

  // Put other samples in the place of those between two.
  replace(from, to, samples) {
    this.pieces = [this.samples(0, from), samples, this.samples(to)];
    this.length += samples.length - (to - from);
  }
}

class Player {
  sound = null; // what plays
  heard = () => {}; // is called with the position while a sound plays, and once when it no longer does

  // Play a sound from a second on, and what is added to it meanwhile.
  play(sound, from, heard) {
    this.stop();
    this.context ??= new AudioContext({ sampleRate: RATE });
    this.context.resume();
    Object.assign(this, { sound, heard, sources: new Set(), parts: [], end: 0, next: Math.round(from * RATE), from });
    this.timer = setInterval(() => this.follow(), INTERVAL_MS);
    this.follow();
  }

  stop() {
    if (!this.sound) return;
    this.heard(this.position(), false);
    this.silence();
  }

  silence() {
    clearInterval(this.timer);
    for (const source of this.sources) source.stop();
    this.sound = null;
  }

  // Seconds of the sound that were played: what plays now, gaps left out.
  position() {
    const now = this.context.currentTime - (this.context.outputLatency || 0);
    const part = this.parts.findLast(({ at }) => at <= now);
    return part ? part.from + Math.min(now - part.at, part.seconds) : this.from;
  }

  follow() {
    while (this.next < this.sound.length && this.end - this.context.currentTime < AHEAD_SECONDS) {
      this.add(this.sound.samples(this.next, PART_SECONDS * RATE));
    }
    const isOver = this.sound.isComplete && this.next >= this.sound.length;
    if (isOver && this.context.currentTime >= this.end) {
      this.silence();
      this.heard(0, false); // from the beginning the next time
    } else {
      this.heard(this.position(), true);
    }
  }

  add(samples) {
    const buffer = this.context.createBuffer(1, samples.length, RATE);
    buffer.getChannelData(0).set(Float32Array.from(samples, (value) => value / 32768));
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.end = Math.max(this.end, this.context.currentTime + LEAD_SECONDS);
    source.start(this.end);
    this.sources.add(source);
    source.onended = () => this.sources.delete(source);
    this.parts.push({ at: this.end, from: this.next / RATE, seconds: buffer.duration });
    this.next += samples.length;
    this.end += buffer.duration;
  }
}

export const player = new Player();
