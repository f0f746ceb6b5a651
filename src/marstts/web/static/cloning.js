// @ts-check
// Cloning in the tab: a recording to the three embeddings of a shallow voice, as `synthesis.clone` and `speaker.mini`.
// The package also looks for speech by voice activity detection, and for a second speaker; the tab does not.

/** @import {CodecSizes, Runtime, Session} from "./types.js" */

import { audibleSpan } from "./edges.js";
import { loudness } from "./loudness.js";
import { logMel } from "./spectra.js";
import { Tensors } from "./tensors.js";

const PEAK = 0.99;

/** @typedef {{size: number, sampleRate: number, fftSize: number, hop: number, numMels: number}} EncoderSizes */

/**
 * `cloning` in `site.json`.
 * @typedef {object} CloningSizes
 * @property {number} minSeconds @property {number} maxSeconds @property {number} timbreSeconds
 * @property {number} chunkSeconds @property {number} shortSeconds @property {number} loudness
 * @property {number} minLoudness
 */

/**
 * Samples at another rate; the browser's resampler in the page.
 * @typedef {(samples: Float32Array, from: number, to: number) => Promise<Float32Array>} Resample
 */

export class Cloner {
  /**
   * @param {Runtime} runtime
   * @param {Record<"identity" | "style" | "speaker" | "timbre", Session>} graphs
   * @param {Record<"identity" | "style" | "speaker", EncoderSizes>} encoders
   * @param {CodecSizes} codec @param {CloningSizes} sizes
   * @param {Resample} resample
   */
  constructor(runtime, graphs, encoders, codec, sizes, resample) {
    this.tensors = new Tensors(runtime);
    this.graphs = graphs;
    this.encoders = encoders;
    this.codec = codec;
    this.sizes = sizes;
    this.resample = resample;
  }

  /**
   * The embeddings of a recording.
   * @param {Float32Array} recording mono, at the codec's rate
   */
  async clone(recording) {
    const { sampleRate } = this.codec;
    const samples = this.prepare(recording).subarray(0, Math.floor(this.sizes.maxSeconds * sampleRate));
    return {
      identity: await this.embed("identity", samples),
      style: await this.embed("style", samples),
      timbre: await this.timbre(samples),
    };
  }

  /** The recording without silence at its ends, at one loudness. @param {Float32Array} recording */
  prepare(recording) {
    const { sampleRate } = this.codec;
    const mean = recording.reduce((sum, value) => sum + value, 0) / Math.max(1, recording.length);
    const centered = recording.map((value) => value - mean);
    if (!(loudness(centered, sampleRate) >= this.sizes.minLoudness)) {
      throw new Error("The recording is silent or too quiet: go nearer to the microphone, or turn it up.");
    }
    const [start, end] = audibleSpan(centered);
    const trimmed = centered.slice(start, end);
    const seconds = trimmed.length / sampleRate;
    if (seconds < this.sizes.minSeconds) {
      throw new Error(`The recording has ${seconds.toFixed(1)} s of speech; cloning needs at least ${this.sizes.minSeconds} s.`);
    }
    const level = loudness(trimmed, sampleRate);
    const peak = trimmed.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const gain = Math.min(10 ** ((this.sizes.loudness - level) / 20), PEAK / peak);
    return Number.isFinite(level) ? trimmed.map((value) => value * gain) : trimmed;
  }

  /**
   * The embedding of a speaker encoder, of unit length.
   * @param {"identity" | "style" | "speaker"} role @param {Float32Array} samples at the codec's rate
   */
  async embed(role, samples) {
    const sizes = this.encoders[role];
    const { sampleRate } = sizes;
    const same = sampleRate === this.codec.sampleRate;
    let resampled = same ? samples : await this.resample(samples, this.codec.sampleRate, sampleRate);
    const least = Math.floor(this.sizes.shortSeconds * sampleRate);
    if (resampled.length < least) {
      const repeated = new Float32Array(Math.ceil(least / resampled.length) * resampled.length);
      for (let at = 0; at < repeated.length; at += resampled.length) repeated.set(resampled, at);
      resampled = repeated;
    }
    const count = Math.ceil(resampled.length / Math.floor(this.sizes.chunkSeconds * sampleRate));
    const sums = new Float64Array(sizes.size);
    for (const chunk of equalParts(resampled, count)) {
      const { mels, frames } = logMel(chunk, sizes);
      const outputs = await this.graphs[role].run({ log_mel: this.tensors.floats(mels, [1, sizes.numMels, frames]) });
      outputs.embedding.data.forEach((/** @type {number} */ value, /** @type {number} */ index) => (sums[index] += value));
    }
    const length = Math.max(Math.hypot(...sums), 1e-8);
    return Array.from(sums, (value) => value / length);
  }

  /** The timbre embedding. @param {Float32Array} samples at the codec's rate */
  async timbre(samples) {
    const { sampleRate, hop, fftSize, numMels, padding, timbreMels } = this.codec;
    const first = samples.subarray(0, Math.floor(this.sizes.timbreSeconds * sampleRate));
    const whole = new Float32Array(Math.ceil(first.length / hop) * hop);
    whole.set(first);
    const { mels, frames } = logMel(whole, { sampleRate, fftSize, hop, numMels, padding });
    const speaker = await this.embed("speaker", first);
    const outputs = await this.graphs.timbre.run({
      mels: this.tensors.floats(mels.subarray(0, timbreMels * frames), [1, timbreMels, frames]),
      speaker: this.tensors.floats(speaker, [1, speaker.length]),
    });
    return /** @type {number[]} */ (Array.from(outputs.timbre.data));
  }
}

/**
 * In equal parts, of which the first may be one sample longer, as `numpy.array_split`.
 * @param {Float32Array} samples @param {number} count
 */
export function equalParts(samples, count) {
  const [size, longer] = [Math.floor(samples.length / count), samples.length % count];
  let at = 0;
  return Array.from({ length: count }, (_, part) => samples.subarray(at, (at += size + Number(part < longer))));
}
