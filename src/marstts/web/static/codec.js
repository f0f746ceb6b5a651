// @ts-check
// The codec's decoder: codes of patches to samples, piece by piece, as `codec.mini.MiniDecoding`.

/** @import {CodecSizes, Runtime, Session} from "./types.js" */

import { transform } from "./fft.js";
import { interpolateF0, phase, pulseTrain } from "./harmonics.js";
import { generator, normal } from "./random.js";
import { hann } from "./spectra.js";
import { Tensors } from "./tensors.js";

const NOISE_SEED = 0; // all utterances have the same noise

/** Noise of one patch, whichever piece it is decoded in. @typedef {(patch: number, size: number) => Float32Array} Noise */

/** @type {Noise} */
const patchNoise = (patch, size) => normal(generator(NOISE_SEED, patch), size);

/**
 * The decoder's graphs, conditioned on a voice's timbre.
 */
export class Codec {
  /**
   * @param {Runtime} runtime
   * @param {{decoder: Session, filters: Session, pitch: Session}} graphs
   * @param {CodecSizes} sizes
   * @param {Noise} noise
   */
  constructor(runtime, graphs, sizes, noise = patchNoise) {
    this.tensors = new Tensors(runtime);
    this.graphs = graphs;
    this.sizes = sizes;
    this.noise = noise;
    this.window = hann(sizes.fftSize);
  }

  /** Start decoding an utterance. @param {ArrayLike<number>} timbre */
  decoding(timbre) {
    return new Decoding(this, timbre);
  }

  /** @param {number[][]} patches codes of each @param {ArrayLike<number>} timbre */
  feeds(patches, timbre) {
    return {
      codes: this.tensors.integers(patches.flat(), [1, patches.length, patches[0].length]),
      timbre: this.tensors.floats(timbre, [1, timbre.length]),
    };
  }

  /**
   * Filtered sum of pulses and noise, frames × hop samples.
   * @param {Filters} filters of the frames `from` to `to`
   * @param {Float32Array} pulses @param {Float32Array} noise beginning with frame 0, padding around it included
   * @param {number} from @param {number} to
   */
  applyFilters({ pulseGain, noiseGain, shift, stride, first }, pulses, noise, from, to) {
    const { fftSize, hop, padding, maxLogGain } = this.sizes;
    const { window } = this;
    const length = (to - from - 1) * hop + fftSize;
    const [samples, weight] = [new Float64Array(length), new Float64Array(length)];
    const [real, imaginary] = [new Float64Array(fftSize), new Float64Array(fftSize)];
    const half = fftSize / 2;
    for (let frame = from; frame < to; frame++) {
      for (let n = 0; n < fftSize; n++) {
        real[n] = pulses[frame * hop + n] * window[n]; // two real signals in one transform
        imaginary[n] = noise[frame * hop + n] * window[n];
      }
      transform(real, imaginary);
      const column = first + frame - from;
      for (let bin = 0; bin <= half; bin++) {
        const mirror = (fftSize - bin) % fftSize;
        const [a, b, c, d] = [real[bin], imaginary[bin], real[mirror], imaginary[mirror]];
        const [pulseReal, pulseImaginary] = [(a + c) / 2, (b - d) / 2];
        const [noiseReal, noiseImaginary] = [(b + d) / 2, (c - a) / 2];
        const at = bin * stride + column;
        const gain = Math.exp(Math.min(pulseGain[at], maxLogGain));
        const loud = Math.exp(Math.min(noiseGain[at], maxLogGain));
        const [cosine, sine] = [gain * Math.cos(shift[at]), gain * Math.sin(shift[at])];
        const sumReal = pulseReal * cosine - pulseImaginary * sine + noiseReal * loud;
        const isReal = bin === 0 || bin === half; // of a real signal
        const sumImaginary = isReal ? 0 : pulseReal * sine + pulseImaginary * cosine + noiseImaginary * loud;
        [real[bin], imaginary[bin]] = [sumReal, sumImaginary];
        if (!isReal) [real[mirror], imaginary[mirror]] = [sumReal, -sumImaginary];
      }
      transform(imaginary, real); // the inverse
      const start = (frame - from) * hop;
      for (let n = 0; n < fftSize; n++) {
        samples[start + n] += (real[n] / fftSize) * window[n];
        weight[start + n] += window[n] * window[n];
      }
    }
    return Float32Array.from({ length: length - 2 * padding }, (_, n) => samples[n + padding] / Math.max(weight[n + padding], 1e-8));
  }
}

/**
 * Filters of frames: (bins, frames) row by row.
 * @typedef {object} Filters
 * @property {Float32Array} pulseGain @property {Float32Array} noiseGain @property {Float32Array} shift
 * @property {number} stride frames of a row
 * @property {number} first the column of the first frame that is wanted
 */

/**
 * Decodes one utterance. Hidden states that no later code can change, and the phase of the pulses, are kept.
 */
export class Decoding {
  decoded = 0; // patches
  cycles = 0; // phase at the start of the last decoded patch, which overlaps with the next piece
  hidden = new Float32Array(0);
  hiddenFrom = 0; // the latent of the first hidden state that is kept

  /** @param {Codec} codec @param {ArrayLike<number>} timbre */
  constructor(codec, timbre) {
    this.codec = codec;
    this.timbre = timbre;
  }

  /**
   * The samples from the end of the last call to patch `stop`.
   * @param {number[][]} patches codes of all patches that are known @param {number} stop
   */
  async decodeUntil(patches, stop) {
    const { sizes } = this.codec;
    const [start, perPatch] = [this.decoded, 2 * sizes.latentsPerPatch];
    if (stop === start) return new Float32Array(0);
    const [first, last] = [Math.max(0, start - 1), Math.min(patches.length, stop + 1)];
    const begin = Math.max(first * perPatch, start * perPatch - sizes.overlap);
    const end = Math.min(last * perPatch, stop * perPatch + sizes.overlap);
    const pulses = this.padded(await this.pulses(patches, first, last, stop), sizes.padding, sizes.padding);
    const noise = this.noise(first, last, patches.length);
    const filters = await this.filters(patches, begin, end);
    const offset = first * perPatch;
    const samples = this.codec.applyFilters(filters, pulses, noise, begin - offset, end - offset);
    this.decoded = stop;
    const skipped = (start * perPatch - begin) * sizes.hop;
    return samples.slice(skipped, skipped + (stop - start) * sizes.patchSamples);
  }

  /** @param {Float32Array} samples @param {number} before @param {number} after */
  padded(samples, before, after) {
    const padded = new Float32Array(before + samples.length + after);
    padded.set(samples, before);
    return padded;
  }

  /**
   * Noise of patches `first` to `last`, and as much around them as the frames at the edges reach; there is none before
   * the first patch or after the last.
   * @param {number} first @param {number} last @param {number} numPatches
   */
  noise(first, last, numPatches) {
    const { patchSamples: size, padding } = this.codec.sizes;
    const [from, to] = [Math.max(0, first - 1), Math.min(numPatches, last + 1)];
    const all = new Float32Array((last - first + 2) * size);
    for (let patch = from; patch < to; patch++) all.set(this.codec.noise(patch, size), (patch - first + 1) * size);
    return all.subarray(size - padding, (last - first + 1) * size + padding);
  }

  /**
   * The filters of frames `begin` to `end`.
   * @param {number[][]} patches @param {number} begin @param {number} end @returns {Promise<Filters>}
   */
  async filters(patches, begin, end) {
    const { sizes, graphs, tensors } = this.codec;
    const first = Math.max(0, Math.floor(begin / 2) - sizes.filtersReach);
    const last = Math.min(patches.length * sizes.latentsPerPatch, Math.ceil(end / 2) + sizes.filtersReach);
    const hidden = await this.hiddenStates(patches, first, last);
    const outputs = await graphs.filters.run({
      hidden: tensors.floats(hidden, [1, last - first, sizes.decoderWidth]),
      timbre: tensors.floats(this.timbre, [1, this.timbre.length]),
    });
    return {
      pulseGain: outputs.pulse_gain.data,
      noiseGain: outputs.noise_gain.data,
      shift: outputs.shift.data,
      stride: 2 * (last - first),
      first: begin - 2 * first,
    };
  }

  /**
   * Hidden states of latents `first` to `last`; only those are computed that are not kept.
   * @param {number[][]} patches @param {number} first @param {number} last
   */
  async hiddenStates(patches, first, last) {
    const { latentsPerPatch: perPatch, hiddenReach: reach, decoderWidth: width } = this.codec.sizes;
    const kept = this.hidden.subarray((first - this.hiddenFrom) * width);
    const known = first + kept.length / width;
    const from = Math.floor(Math.max(0, known - reach) / perPatch);
    const to = Math.min(patches.length, Math.ceil((last + reach) / perPatch));
    const outputs = await this.codec.graphs.decoder.run(this.codec.feeds(patches.slice(from, to), this.timbre));
    const computed = outputs.hidden.data.subarray((known - from * perPatch) * width);
    const hidden = new Float32Array(kept.length + computed.length);
    hidden.set(kept);
    hidden.set(computed, kept.length);
    const final = to * perPatch - reach; // states of later latents depend on later codes
    this.hidden = hidden.slice(0, Math.max(0, final - first) * width);
    this.hiddenFrom = first;
    return hidden.subarray(0, (last - first) * width);
  }

  /**
   * The pulses of patches `first` to `last`, in phase with the last call's; the next one starts at `stop` - 1.
   * @param {number[][]} patches @param {number} first @param {number} last @param {number} stop
   */
  async pulses(patches, first, last, stop) {
    const { patchSamples: size, sampleRate, hop, pitchReach, minPitchPatches } = this.codec.sizes;
    const knownFrom = Math.max(0, first - pitchReach[0]);
    const until = stop + pitchReach[1];
    const window = patches.slice(knownFrom, until);
    while (until <= patches.length && window.length < minPitchPatches) window.push(new Array(patches[0].length).fill(0));
    const outputs = await this.codec.graphs.pitch.run(this.codec.feeds(window, this.timbre));
    const before = Math.min(1, first - knownFrom); // one more patch on either side, for the interpolation
    const perPatch = size / hop;
    const pitch = outputs.pitch.data.slice((first - knownFrom - before) * perPatch, (last - knownFrom + 1) * perPatch);
    const hertz = interpolateF0(pitch, hop).subarray(before * size, (before + last - first) * size);
    const cycles = phase(hertz, sampleRate, this.cycles);
    if (stop - 1 > first) this.cycles = cycles[(stop - 1 - first) * size - 1];
    return pulseTrain(hertz, cycles, sampleRate);
  }
}
