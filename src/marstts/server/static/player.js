// Sounds that arrive in pieces (24 kHz, 16 bit), and the one player of the page, which can play them meanwhile.

export const RATE = 24000;
const LEAD_SECONDS = 0.05;
const INTERVAL_MS = 30;

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

  // All samples from this one on.
  samples(first = 0) {
    const joined = new Int16Array(Math.max(0, this.length - first));
    let at = -first;
    for (const piece of this.pieces) {
      if (at + piece.length > 0) joined.set(at < 0 ? piece.subarray(-at) : piece, Math.max(0, at));
      at += piece.length;
    }
    return joined;
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
    Object.assign(this, { sound, heard, sources: [], parts: [], end: 0, next: Math.round(from * RATE), from });
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
    if (this.next < this.sound.length) this.add(this.sound.samples(this.next));
    if (this.sound.isComplete && this.context.currentTime >= this.end) {
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
    this.sources.push(source);
    this.parts.push({ at: this.end, from: this.next / RATE, seconds: buffer.duration });
    this.next += samples.length;
    this.end += buffer.duration;
  }
}

export const player = new Player();
