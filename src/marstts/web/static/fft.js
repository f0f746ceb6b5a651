// @ts-check
// The fast Fourier transform of a power of two of complex numbers, in place.

/** @typedef {{size: number, cosines: Float64Array, sines: Float64Array, order: Uint32Array}} Plan */

/** @type {Map<number, Plan>} */
const plans = new Map();

/** @param {number} size @returns {Plan} */
function planOf(size) {
  let plan = plans.get(size);
  if (!plan) {
    const turn = (/** @type {number} */ k) => (-2 * Math.PI * k) / size;
    const bits = Math.log2(size);
    const reversed = (/** @type {number} */ index) => {
      let result = 0;
      for (let bit = 0; bit < bits; bit++) result |= ((index >> bit) & 1) << (bits - 1 - bit);
      return result;
    };
    plan = {
      size,
      cosines: Float64Array.from({ length: size / 2 }, (_, k) => Math.cos(turn(k))),
      sines: Float64Array.from({ length: size / 2 }, (_, k) => Math.sin(turn(k))),
      order: Uint32Array.from({ length: size }, (_, index) => reversed(index)),
    };
    plans.set(size, plan);
  }
  return plan;
}

/**
 * Transform `size` numbers; the inverse is the transform with both arrays exchanged, divided by the size.
 * @param {Float64Array} real @param {Float64Array} imaginary
 */
export function transform(real, imaginary) {
  const { size, cosines, sines, order } = planOf(real.length);
  for (let index = 0; index < size; index++) {
    const other = order[index];
    if (other > index) {
      [real[index], real[other]] = [real[other], real[index]];
      [imaginary[index], imaginary[other]] = [imaginary[other], imaginary[index]];
    }
  }
  for (let half = 1; half < size; half *= 2) {
    const stride = size / (2 * half);
    for (let start = 0; start < size; start += 2 * half) {
      for (let k = 0; k < half; k++) {
        const [cosine, sine] = [cosines[k * stride], sines[k * stride]];
        const [low, high] = [start + k, start + k + half];
        const turnedReal = real[high] * cosine - imaginary[high] * sine;
        const turnedImaginary = real[high] * sine + imaginary[high] * cosine;
        real[high] = real[low] - turnedReal;
        imaginary[high] = imaginary[low] - turnedImaginary;
        real[low] += turnedReal;
        imaginary[low] += turnedImaginary;
      }
    }
  }
}
