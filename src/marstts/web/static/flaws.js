// @ts-check
// Flaws of a take: words that are missing or broken off, loops, sounds after the last word, as
// `synthesis.words.flaws`. What the package finds in the loudness (`word_counts`) is not looked for here.

import { FRAMES_PER_STEP } from "./audible.js";
import { attendedSpans } from "./words.js";

/** @import {Path} from "./path.js" */

export const [AT_END, MAX_STEPS_AT_END] = [0.5, 3];
export const [MAX_STEPS_IN_WORD, STEPS_PER_LETTER] = [18, 3];
const [MIN_AFTER_WORDS, MIN_AFTER_LOUD_END, LOUD_END, LAST_STEPS] = [0.6, 1.5, 0.5, 2];
const [MIN_SHARE, MIN_SHARE_BEFORE_PAUSE, MIN_SHORTENED_LETTERS] = [0.6, 0.65, 4];
const [MIN_SKIPPED_LETTERS, MIN_REPEATED_PATCHES] = [3, 2];

/**
 * @typedef {{kind: "skipped" | "unfinished" | "loop" | "babble after the end", word: string, step: number}} Flaw
 */

/**
 * @param {Path} path @param {number[][]} patches @param {boolean} hasEnded by end of speech
 * @returns {Flaw[]}
 */
export function findFlaws(path, patches, hasEnded) {
  const { places, steps, attention } = path;
  if (!steps.length) return [];
  /** @param {Flaw["kind"]} kind @param {number} place @param {number} step @returns {Flaw} */
  const flaw = (kind, place, step) => ({ kind, word: places.word(place), step });
  const flaws = [...skippedWords(path)].map(([place, step]) => flaw("skipped", place, step));
  flaws.push(...[...longWords(path)].map(([place, step]) => flaw("loop", place, step)));
  const repeated = repeatedPatch(patches);
  if (repeated !== null) flaws.push(flaw("loop", steps[repeated], repeated));
  if (hasEnded && breaksOff(path)) flaws.push(flaw("unfinished", places.words[places.words.length - 1], steps.length));
  const end = attention.findIndex((shares) => shares[places.count - 1] >= AT_END);
  if (end >= 0 && steps.length - end > MAX_STEPS_AT_END) flaws.push({ kind: "babble after the end", word: "", step: end + 1 });
  return flaws;
}

/** @param {Path} path @returns {Generator<[number, number]>} */
function* skippedWords(path) {
  const { places, steps, knowsSound } = path;
  const furthest = Math.max(...steps);
  const spans = attendedSpans(path);
  for (const index of places.words) {
    if (index >= furthest) return;
    const { letters } = places.places[index];
    const step = steps.findIndex((here) => here >= index);
    const share = places.isWord[index + 1] ? MIN_SHARE : MIN_SHARE_BEFORE_PAUSE;
    const span = spans.get(index);
    if (!span) {
      if (letters >= MIN_SKIPPED_LETTERS) yield [index, step];
    } else if (letters >= MIN_SHORTENED_LETTERS && knowsSound) {
      if (Math.max(0, span.end - span.start) < share * places.usualSteps[index]) yield [index, step];
    }
  }
}

/** Whether a take ends before its last word does. @param {Path} path */
function breaksOff({ places, attention, audible }) {
  if (!places.words.length) return false;
  const last = places.words[places.words.length - 1];
  let after = 0;
  for (const shares of attention) for (let place = last + 1; place < shares.length; place++) after += shares[place];
  const frames = audible.subarray(-(1 + LAST_STEPS) * FRAMES_PER_STEP, -FRAMES_PER_STEP);
  const level = frames.reduce((sum, share) => sum + share, 0) / Math.max(1, frames.length);
  return after < (level > LOUD_END ? MIN_AFTER_LOUD_END : MIN_AFTER_WORDS);
}

/** @param {Path} path @returns {Generator<[number, number]>} */
function* longWords({ places, steps }) {
  for (const index of places.words) {
    const most = Math.max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * places.places[index].letters);
    if (steps.filter((here) => here === index).length > most) yield [index, steps.indexOf(index)];
  }
}

/**
 * The patch where a stretch begins that returns at once token for token; null if none does.
 * @param {number[][]} patches
 */
export function repeatedPatch(patches) {
  const names = patches.map(String);
  if (names.length - new Set(names).size < MIN_REPEATED_PATCHES) return null;
  for (let length = MIN_REPEATED_PATCHES; length <= Math.floor(names.length / 2); length++) {
    let run = 0;
    for (let patch = 0; patch + length < names.length; patch++) {
      run = names[patch] === names[patch + length] ? run + 1 : 0;
      if (run === length) return patch - length + 1;
    }
  }
  return null;
}
