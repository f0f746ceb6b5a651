// @ts-check
// How audible a take is, frame by frame, as `synthesis.words.audible_steps`: in silence no word is said.

export const FRAMES_PER_STEP = 8;
const [SPEECH_DB, SILENCE_DB] = [-20, -38]; // relative to the loudest frame so far
const FLOOR_DB = -60;

/**
 * From 0 to 1, `FRAMES_PER_STEP` numbers for each whole step.
 * @param {Float32Array} samples @param {number} samplesPerStep
 */
export function audibleFrames(samples, samplesPerStep) {
  const steps = Math.floor(samples.length / samplesPerStep);
  const size = Math.floor(samplesPerStep / FRAMES_PER_STEP);
  let peak = 0;
  return Float32Array.from({ length: steps * FRAMES_PER_STEP }, (_, frame) => {
    const start = Math.floor(frame / FRAMES_PER_STEP) * samplesPerStep + (frame % FRAMES_PER_STEP) * size;
    let power = 0;
    for (let n = start; n < start + size; n++) power += samples[n] ** 2;
    power /= size;
    peak = Math.max(peak, power);
    const level = 10 * Math.log10((power + 1e-12) / Math.max(peak, 10 ** (FLOOR_DB / 10)));
    return Math.min(Math.max((level - SILENCE_DB) / (SPEECH_DB - SILENCE_DB), 0), 1);
  });
}
