// @ts-check
// Log-mel spectrograms, as `audio.spectral`: the features of speaker encoders and timbre encoder.

import { transform } from "./fft.js";

const LOG_FLOOR = 1e-5; // smallest magnitude

/** @param {number} size @returns {Float64Array} periodic Hann window */
export function hann(size) {
  return Float64Array.from({ length: size }, (_, n) => Math.fround(0.5 - 0.5 * Math.cos((2 * Math.PI * n) / size)));
}

/**
 * Triangles with peaks at 1, evenly spaced on the HTK mel scale from 0 Hz to Nyquist.
 * @param {number} sampleRate @param {number} fftSize @param {number} numMels
 * @returns {{first: number, weights: Float32Array}[]} of each band the first bin and the weights from there on
 */
export function melFilters(sampleRate, fftSize, numMels) {
  const top = 2595 * Math.log10(1 + sampleRate / 2 / 700);
  const edge = (/** @type {number} */ m) => 700 * (10 ** ((top * m) / (numMels + 1) / 2595) - 1);
  const hertz = (/** @type {number} */ bin) => (bin * sampleRate) / fftSize;
  return Array.from({ length: numMels }, (_, band) => {
    const [low, peak, high] = [edge(band), edge(band + 1), edge(band + 2)];
    const weight = (/** @type {number} */ f) => Math.max(0, Math.min((f - low) / (peak - low), (high - f) / (high - peak)));
    const all = Array.from({ length: fftSize / 2 + 1 }, (_, bin) => weight(hertz(bin)));
    const first = all.findIndex((value) => value > 0);
    const last = all.findLastIndex((value) => value > 0);
    return { first: Math.max(0, first), weights: Float32Array.from(first < 0 ? [] : all.slice(first, last + 1)) };
  });
}

/**
 * Samples with more before and after them, mirrored where there are enough, else zeros.
 * @param {Float32Array} samples @param {number} padding
 */
function reflected(samples, padding) {
  const padded = new Float32Array(samples.length + 2 * padding);
  padded.set(samples, padding);
  if (samples.length > padding) {
    for (let n = 1; n <= padding; n++) {
      padded[padding - n] = samples[n];
      padded[padding + samples.length - 1 + n] = samples[samples.length - 1 - n];
    }
  }
  return padded;
}

/**
 * Natural logarithms of mel magnitudes, (numMels, frames) row by row.
 * @param {Float32Array} samples
 * @param {{sampleRate: number, fftSize: number, hop: number, numMels: number, padding?: number}} sizes
 * `padding` is half of the FFT unless given
 */
export function logMel(samples, { sampleRate, fftSize, hop, numMels, padding = fftSize / 2 }) {
  const padded = reflected(samples, padding);
  const frames = Math.floor((padded.length - fftSize) / hop) + 1;
  const [window, filters] = [hann(fftSize), melFilters(sampleRate, fftSize, numMels)];
  const mels = new Float32Array(numMels * frames);
  const [real, imaginary] = [new Float64Array(fftSize), new Float64Array(fftSize)];
  const magnitudes = new Float64Array(fftSize / 2 + 1);
  for (let frame = 0; frame < frames; frame++) {
    for (let n = 0; n < fftSize; n++) real[n] = padded[frame * hop + n] * window[n];
    imaginary.fill(0);
    transform(real, imaginary);
    for (let bin = 0; bin < magnitudes.length; bin++) magnitudes[bin] = Math.hypot(real[bin], imaginary[bin]);
    filters.forEach(({ first, weights }, band) => {
      let sum = 0;
      for (let bin = 0; bin < weights.length; bin++) sum += weights[bin] * magnitudes[first + bin];
      mels[band * frames + frame] = Math.log(Math.max(sum, LOG_FLOOR));
    });
  }
  return { mels, frames };
}
