// @ts-check
// Loudness after ITU-R BS.1770-4, as `audio.loudness`: tells whether a take or a recording is audible.

const [BLOCK_SECONDS, STEP_SECONDS] = [0.4, 0.1];
const [ABSOLUTE_GATE, RELATIVE_GATE] = [-70, -10]; // LUFS, and LU below what passes the first gate
const OFFSET = -0.691; // LUFS of a block whose mean square is 1

/** @typedef {{above: number[], below: number[]}} Biquad */

/** @param {number} hertz @param {number} q @param {number} rate */
const cosineAndSlope = (hertz, q, rate) => {
  const turn = (2 * Math.PI * hertz) / rate;
  return [Math.cos(turn), Math.sin(turn) / (2 * q)];
};

/** @param {number} rate @returns {Biquad} */
function highShelf(rate) {
  const lift = 10 ** (4 / 40);
  const [cosine, slope] = cosineAndSlope(1500, Math.sqrt(0.5), rate);
  const [more, less, width] = [lift + 1, lift - 1, 2 * Math.sqrt(lift) * slope];
  const above = [more + less * cosine + width, -2 * (less + more * cosine), more + less * cosine - width];
  const below = [more - less * cosine + width, 2 * (less - more * cosine), more - less * cosine - width];
  return { above: above.map((value) => lift * value), below };
}

/** @param {number} rate @returns {Biquad} */
function highPass(rate) {
  const [cosine, slope] = cosineAndSlope(38, 0.5, rate);
  const rise = (1 + cosine) / 2;
  return { above: [rise, -2 * rise, rise], below: [1 + slope, -2 * cosine, 1 - slope] };
}

/** @param {Float64Array} samples changed in place @param {Biquad} filter */
function apply(samples, { above, below }) {
  const [b0, b1, b2] = above.map((value) => value / below[0]);
  const [, a1, a2] = below.map((value) => value / below[0]);
  let [x1, x2, y1, y2] = [0, 0, 0, 0];
  for (let n = 0; n < samples.length; n++) {
    const x = samples[n];
    const y = b0 * x + b1 * x1 + b2 * x2 - a1 * y1 - a2 * y2;
    [x2, x1, y2, y1] = [x1, x, y1, y];
    samples[n] = y;
  }
}

/**
 * Integrated loudness in LUFS; minus infinity where nothing passes the gates. Less than a block counts as if silence
 * filled it.
 * @param {Float32Array} samples @param {number} rate
 */
export function loudness(samples, rate) {
  const weighted = new Float64Array(Math.max(samples.length, Math.ceil(BLOCK_SECONDS * rate)));
  weighted.set(samples);
  apply(weighted, highShelf(rate));
  apply(weighted, highPass(rate));
  const squares = new Float64Array(weighted.length + 1);
  for (let n = 0; n < weighted.length; n++) squares[n + 1] = squares[n] + weighted[n] ** 2;
  const count = Math.round((weighted.length / rate - BLOCK_SECONDS) / STEP_SECONDS) + 1;
  const place = (/** @type {number} */ seconds) => Math.min(Math.floor(seconds * rate + 1e-6), weighted.length);
  const powers = Array.from({ length: count }, (_, block) => {
    const start = block * STEP_SECONDS;
    return (squares[place(start + BLOCK_SECONDS)] - squares[place(start)]) / (BLOCK_SECONDS * rate);
  });
  const lufs = (/** @type {number} */ power) => OFFSET + 10 * Math.log10(Math.max(power, 1e-30));
  const mean = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const loud = powers.filter((power) => lufs(power) >= ABSOLUTE_GATE);
  if (!loud.length) return -Infinity;
  const gate = lufs(mean(loud)) + RELATIVE_GATE;
  return lufs(mean(loud.filter((power) => lufs(power) > gate)));
}
