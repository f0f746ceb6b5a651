// Plays raw PCM (24 kHz, 16 bit) from the first bytes on.

export const RATE = 24000;
const LEAD_SECONDS = 0.05;

export class Player {
  constructor() {
    this.context = new AudioContext({ sampleRate: RATE });
    this.end = 0;
    this.rest = new Uint8Array(0);
    this.pieces = [];
    this.parts = []; // when each piece begins to play, and with which second of the speech
    this.length = 0; // seconds that were pushed
  }

  // Seconds of the speech that were played: what plays now, gaps left out.
  position() {
    const now = this.context.currentTime - (this.context.outputLatency || 0);
    const part = this.parts.findLast(({ at }) => at <= now);
    return part ? part.from + Math.min(now - part.at, part.seconds) : 0;
  }

  // Resolves when all that was pushed was played.
  async finish() {
    const left = this.end - this.context.currentTime;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, left) * 1000));
  }

  push(bytes) {
    const all = new Uint8Array(this.rest.length + bytes.length);
    all.set(this.rest);
    all.set(bytes, this.rest.length);
    const even = all.length - (all.length % 2);
    this.rest = all.slice(even);
    if (even === 0) return;
    const samples = new Int16Array(all.buffer.slice(0, even));
    this.pieces.push(samples);
    const buffer = this.context.createBuffer(1, samples.length, RATE);
    buffer.getChannelData(0).set(Float32Array.from(samples, (value) => value / 32768));
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.end = Math.max(this.end, this.context.currentTime + LEAD_SECONDS);
    source.start(this.end);
    this.parts.push({ at: this.end, from: this.length, seconds: buffer.duration });
    this.length += buffer.duration;
    this.end += buffer.duration;
  }

  // All samples so far.
  samples() {
    const joined = new Int16Array(this.pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of this.pieces) {
      joined.set(piece, at);
      at += piece.length;
    }
    return joined;
  }

  stop() {
    return this.context.close().catch(() => undefined);
  }
}
