// @ts-check
// Resampling by a windowed sinc: for the speaker encoder that reads another rate than the codec.

const ZERO_CROSSINGS = 32;
const ROLLOFF = 0.945; // of the lower Nyquist frequency, where the pass band ends

/**
 * The same audio at another rate.
 * @param {Float32Array} samples @param {number} from @param {number} to
 */
export async function resample(samples, from, to) {
  if (from === to) return samples;
  const ratio = to / from;
  const cutoff = ROLLOFF * Math.min(1, ratio); // relative to the Nyquist frequency of `samples`
  const reach = Math.ceil(ZERO_CROSSINGS / cutoff);
  const divisor = greatestCommonDivisor(from, to);
  const [up, down] = [to / divisor, from / divisor]; // output n lies at input n * down / up
  const phases = Array.from({ length: up }, (_, phase) => kernel(phase / up, reach, cutoff));
  const resampled = new Float32Array(Math.ceil(samples.length * ratio));
  for (let n = 0; n < resampled.length; n++) {
    const center = Math.floor((n * down) / up);
    const weights = phases[(n * down) % up];
    let sum = 0;
    const [first, last] = [Math.max(0, center - reach), Math.min(samples.length - 1, center + reach)];
    for (let at = first; at <= last; at++) sum += samples[at] * weights[at - center + reach];
    resampled[n] = sum;
  }
  return resampled;
}

/** @param {number} offset of the output from the center, in input samples @param {number} reach @param {number} cutoff */
function kernel(offset, reach, cutoff) {
  return Float64Array.from({ length: 2 * reach + 1 }, (_, index) => {
    const distance = index - reach - offset;
    const x = Math.PI * cutoff * distance;
    const window = Math.abs(distance) <= reach ? 0.5 + 0.5 * Math.cos((Math.PI * distance) / reach) : 0;
    return cutoff * (x ? Math.sin(x) / x : 1) * window;
  });
}

/** @param {number} a @param {number} b @returns {number} */
function greatestCommonDivisor(a, b) {
  return b ? greatestCommonDivisor(b, a % b) : a;
}
