// @ts-check
// Backoff: how long a sentence may be, how bold each attempt is, why a take is refused (MARS6, Sec. IV-B3), as
// `synthesis.backoff`.

/** @import {Backoff} from "./types.js" */
/** @import {Flaw} from "./flaws.js" */

/** @typedef {"end of speech" | "patch limit" | "last word spoken" | "given up"} Stop */

/**
 * What is known of an attempt when it has ended.
 * @typedef {object} Attempted
 * @property {number} characters of the sentence
 * @property {number} seconds
 * @property {number} loudness LUFS
 * @property {Stop} stop
 * @property {Flaw[]} flaws
 */

export const REASONS = {
  silent: "nothing is audible",
  short: "shorter than its words can be spoken",
  unended: "still speaking when it was cut off",
  long: "longer than its words should take",
  words: "not all words are said once",
};

/** @param {Backoff} backoff @param {number} topP of the first attempt @returns {number[]} */
export function topPSchedule(backoff, topP) {
  const step = (/** @type {number} */ attempt) => Math.round((topP + attempt * backoff.topPStep) * 100) / 100;
  return Array.from({ length: backoff.attempts }, (_, attempt) => Math.min(1, step(attempt)));
}

/** @param {Backoff} backoff @param {number} characters */
export const shortest = (backoff, characters) => backoff.onsetSeconds + characters / backoff.maxCharsPerSecond;

/** @param {Backoff} backoff @param {number} characters */
export const usual = (backoff, characters) =>
  Math.max(backoff.onsetSeconds, characters / backoff.typicalCharsPerSecond);

/** @param {Backoff} backoff @param {number} characters */
export const longest = (backoff, characters) => backoff.slackSeconds + characters / backoff.minCharsPerSecond;

/**
 * Bounds of the patches of a take.
 * @param {Backoff} backoff @param {number} characters @param {number} patchRate
 */
export function limits(backoff, characters, patchRate) {
  return {
    min: Math.ceil(shortest(backoff, characters) * patchRate),
    max: Math.ceil(longest(backoff, characters) * backoff.maxLengthFactor * patchRate),
  };
}

/**
 * The first reason to sample the sentence again; "" for an acceptable take.
 * @param {Attempted} take @param {Backoff} backoff
 */
export function rejectionReason(take, backoff) {
  if (take.loudness < backoff.minLoudness) return REASONS.silent;
  if (take.seconds < shortest(backoff, take.characters)) return REASONS.short;
  if (take.stop !== "end of speech" && take.stop !== "last word spoken") return REASONS.unended;
  if (take.seconds > longest(backoff, take.characters)) return REASONS.long;
  return take.flaws.length ? REASONS.words : "";
}

/**
 * The best of refused takes: audible, with the fewest flaws, then the nearest to the usual length.
 * @template {Attempted} T
 * @param {T[]} takes @param {Backoff} backoff @returns {T}
 */
export function bestOf(takes, backoff) {
  const badness = (/** @type {T} */ take) => {
    if (take.loudness < backoff.minLoudness) return [1, 0, 0];
    const isLong = take.seconds > longest(backoff, take.characters);
    const faults = take.flaws.length + Number(take.stop === "given up") + Number(isLong);
    return [0, faults, Math.abs(Math.log(take.seconds / usual(backoff, take.characters)))];
  };
  return takes.reduce((best, take) => (isLess(badness(take), badness(best)) ? take : best));
}

/** @param {number[]} left @param {number[]} right */
function isLess(left, right) {
  const at = left.findIndex((value, index) => value !== right[index]);
  return at >= 0 && left[at] < right[at];
}
