// @ts-check
// A peak limiter for audio that comes in pieces, as `audio.limiter`: never beyond ±1, never cut off flat.

import { joined } from "./edges.js";

const HOP_SECONDS = 0.005;
const RELEASE_SECONDS = 0.1;
const NEARLY_ONE = 0.999;

export class Limiter {
  held = new Float32Array(0);
  gain = 1; // at the beginning of what is held

  /** @param {number} sampleRate */
  constructor(sampleRate) {
    this.hop = Math.max(1, Math.round(HOP_SECONDS * sampleRate));
    this.recovery = 1 - Math.exp(-HOP_SECONDS / RELEASE_SECONDS);
  }

  /** @param {Float32Array} samples @returns {Float32Array} those that are finished */
  push(samples) {
    this.held = joined([this.held, samples]);
    return this.release(Math.floor(this.held.length / this.hop));
  }

  /** @returns {Float32Array} the rest */
  finish() {
    const { length } = this.held;
    const hops = Math.ceil(length / this.hop);
    this.held = joined([this.held, new Float32Array((hops + 1) * this.hop - length)]);
    return this.release(hops + 1).subarray(0, length);
  }

  /** The hops whose following hop is known. @param {number} hops */
  release(hops) {
    if (hops < 2) return new Float32Array(0);
    const allowed = Array.from({ length: hops }, (_, index) => {
      let peak = 1;
      for (let n = index * this.hop; n < (index + 1) * this.hop; n++) peak = Math.max(peak, Math.abs(this.held[n]));
      return 1 / peak;
    });
    const gains = [Math.min(this.gain, allowed[0])];
    for (let index = 0; index + 1 < hops; index++) {
      const last = gains[gains.length - 1];
      const recovered = last + (1 - last) * this.recovery;
      gains.push(Math.min(allowed[index], allowed[index + 1], recovered > NEARLY_ONE ? 1 : recovered));
    }
    const released = this.held.slice(0, (hops - 1) * this.hop);
    if (Math.min(...gains) < 1) {
      for (let n = 0; n < released.length; n++) {
        const index = Math.floor(n / this.hop);
        const gain = gains[index] + (gains[index + 1] - gains[index]) * ((n % this.hop) / this.hop);
        released[n] = Math.min(Math.max(released[n] * gain, -1), 1);
      }
    }
    this.held = this.held.slice(released.length);
    this.gain = gains[gains.length - 1];
    return released;
  }
}
