// @ts-check
// The sources of speech that the codec filters, pulses at its F0, as `codec.harmonics`.

const MAX_NYQUIST_RATIO = 0.98; // bound of the harmonics' frequencies

/**
 * F0 at the centers of frames -> at samples: linear between, constant at both ends.
 * @param {ArrayLike<number>} f0 @param {number} hop
 */
export function interpolateF0(f0, hop) {
  const hertz = new Float64Array(f0.length * hop);
  for (let n = 0; n < hertz.length; n++) {
    const place = Math.min(Math.max((n + 0.5) / hop - 0.5, 0), f0.length - 1);
    const [before, rest] = [Math.floor(place), place - Math.floor(place)];
    hertz[n] = f0[before] + (rest ? (f0[before + 1] - f0[before]) * rest : 0);
  }
  return hertz;
}

/**
 * Phase in cycles, modulo 1, after each sample.
 * @param {Float64Array} hertz @param {number} sampleRate @param {number} before the phase before the first sample
 */
export function phase(hertz, sampleRate, before) {
  const cycles = new Float64Array(hertz.length);
  let sum = before;
  for (let n = 0; n < hertz.length; n++) {
    sum += hertz[n] / sampleRate;
    cycles[n] = sum - Math.floor(sum);
  }
  return cycles;
}

/**
 * Pulses of unit power at whole cycles: all harmonics, in closed form.
 * @param {Float64Array} hertz @param {Float64Array} cycles @param {number} sampleRate
 */
export function pulseTrain(hertz, cycles, sampleRate) {
  return Float32Array.from(cycles, (cycle, n) => {
    const harmonics = Math.floor((MAX_NYQUIST_RATIO * sampleRate) / 2 / hertz[n]);
    const half = Math.PI * cycle;
    const denominator = Math.sin(half);
    const order = 2 * harmonics + 1;
    const total = (Math.abs(denominator) < 1e-6 ? order : Math.sin(order * half) / denominator) - 1;
    return total / Math.sqrt(2 * harmonics);
  });
}
