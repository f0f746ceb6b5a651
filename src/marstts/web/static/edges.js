// @ts-check
// The edges of a sentence that is sent while it is made, as `synthesis.stream_edges`, and the span of a recording.

const [FRAME, HOP] = [2048, 512]; // samples; frames in which sound is looked for
const FADE_SECONDS = 0.005;
const SILENCE_DB = -60; // RMS of a frame: quieter ones are silence
const EDGE_BELOW_PEAK_DB = 40;
const TAIL_BELOW_PEAK_DB = 20;
const MAX_TAIL_SECONDS = 0.4;

/** @param {number} db */
const power = (db) => 10 ** (db / 10);

/**
 * Trims and fades the ends of a sentence. What is pushed comes back as soon as it is certain to belong to the sentence
 * and not to its fading end.
 */
export class Trimmer {
  samples = new Float32Array(0);
  frames = 0;
  peak = 0;
  lastLoud = 0;
  /** @type {number | null} */
  start = null; // first sample of the sentence
  end = 0; // end of the sentence, if nothing louder follows
  sent = 0;

  /** @param {number} sampleRate */
  constructor(sampleRate) {
    this.sampleRate = sampleRate;
    this.fade = Math.round(FADE_SECONDS * sampleRate);
  }

  /** @param {Float32Array} samples @returns {Float32Array} those that are ready to be sent */
  push(samples) {
    this.samples = joined([this.samples, samples]);
    this.look(this.samples.length - FRAME / 2);
    const end = Math.min(this.end, this.samples.length) - this.fade;
    if (this.start === null || end < Math.max(this.start + 2 * this.fade, this.sent)) return new Float32Array(0);
    return this.release(this.start, end);
  }

  /** @returns {Float32Array} the rest of the sentence, faded out */
  finish() {
    this.look(this.samples.length);
    const end = Math.min(this.end, this.samples.length);
    if (this.start === null || end <= this.start) return new Float32Array(0);
    const length = Math.min(this.fade, Math.floor((end - this.start) / 2));
    const released = this.release(this.start, end);
    for (let n = 0; n < length; n++) released[released.length - 1 - n] *= (n + 0.5) / length;
    return released;
  }

  /** Check the frames whose center is not after a sample. @param {number} last */
  look(last) {
    for (let center; (center = this.frames * HOP) <= last; this.frames++) {
      let sum = 0;
      const to = Math.min(center + FRAME / 2, this.samples.length);
      for (let n = Math.max(0, center - FRAME / 2); n < to; n++) sum += this.samples[n] ** 2;
      const level = sum / FRAME;
      this.peak = Math.max(this.peak, level);
      if (level > this.peak * power(-TAIL_BELOW_PEAK_DB)) this.lastLoud = center;
      if (level > Math.max(power(SILENCE_DB), this.peak * power(-EDGE_BELOW_PEAK_DB))) {
        this.start ??= center;
        if (center - this.lastLoud <= MAX_TAIL_SECONDS * this.sampleRate) this.end = center + HOP;
      }
    }
  }

  /** @param {number} start @param {number} end */
  release(start, end) {
    const released = this.samples.slice(Math.max(start, this.sent), end);
    if (this.sent <= start) {
      const length = Math.min(this.fade, Math.floor((end - start) / 2));
      for (let n = 0; n < length; n++) released[n] *= (n + 0.5) / length;
    }
    this.sent = end;
    return released;
  }
}

/**
 * First sample and last + 1 of what is not much quieter than the loudest frame, as `audio.audible_span`.
 * @param {Float32Array} samples @param {number} belowPeakDb
 */
export function audibleSpan(samples, belowPeakDb = 33) {
  const count = Math.floor(samples.length / HOP) + 1;
  const powers = Array.from({ length: count }, (_, frame) => {
    let sum = 0;
    const to = Math.min(frame * HOP + FRAME / 2, samples.length);
    for (let n = Math.max(0, frame * HOP - FRAME / 2); n < to; n++) sum += samples[n] ** 2;
    return sum / FRAME;
  });
  const gate = Math.max(...powers) * power(-belowPeakDb);
  if (gate === 0) return [0, samples.length];
  const isAudible = (/** @type {number} */ level) => level > gate;
  return [powers.findIndex(isAudible) * HOP, Math.min((powers.findLastIndex(isAudible) + 1) * HOP, samples.length)];
}

/** @param {Float32Array[]} pieces */
export function joined(pieces) {
  const all = new Float32Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
