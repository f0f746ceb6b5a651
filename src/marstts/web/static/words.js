// @ts-check
// Word times: when each word of a take is said, from the path of its attention, as `synthesis.words.word_times`.

import { FRAMES_PER_STEP } from "./audible.js";

/** @import {Path} from "./path.js" */
/** @import {Word} from "./types.js" */

const [LAG_SECONDS, LAG_STEPS] = [0.056, 0.66];
const [END_SPREAD, FARTHEST_END, MAX_CLOSURE_FRAMES, MIN_FRAMES_OF_WORD] = [4.25, 12, 8, 2];
const [DOUBTFUL_SOUND, FRAMES_AFTER_SOUND] = [0.15, 2];
const [MIN_WORD_SECONDS, MIN_SKIPPED_LETTERS] = [0.04, 3];

const round = (/** @type {number} */ seconds) => Math.round(seconds * 1000) / 1000;
const total = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0);

/** @typedef {{first: number, last: number, start: number, end: number, confidence: number}} TimedSpan */

/** @typedef {{lastStep: number, start: number, end: number, confidence: number}} AttendedSpan */

/**
 * Place of each word in which the path has been -> when it has attention, the first time.
 * @param {Path} path @returns {Map<number, AttendedSpan>}
 */
export function attendedSpans({ places, steps, attention }) {
  const stretches = firstStretches(steps);
  const later = attention.map((shares) => {
    const sums = Float64Array.from(shares);
    for (let place = sums.length - 2; place >= 0; place--) sums[place] += sums[place + 1];
    return sums;
  });
  const spans = new Map();
  for (const index of places.words) {
    const stretch = stretches.get(index);
    if (!stretch) continue;
    const [first, last] = stretch;
    const confidence = total(attention.slice(first, last + 1).map((shares) => shares[index])) / (last + 1 - first);
    const [start, end] = [boundary(later, first, index), boundary(later, last + 1, index + 1)];
    spans.set(index, { lastStep: last, start, end, confidence });
  }
  return spans;
}

/**
 * The words that were said, in steps of the take.
 * @param {Path} path @param {number} finishedBefore only words whose end lies before that step
 * @returns {TimedSpan[]}
 */
export function timedSpans(path, finishedBefore = Infinity) {
  /** @type {TimedSpan[]} */
  const spans = [];
  for (const [index, span] of attendedSpans(path)) {
    if (span.lastStep + 1 >= finishedBefore) break;
    const { start, confidence } = span;
    const place = path.places.places[index];
    spans.push({ first: place.start, last: place.end, start, end: Math.max(start, endBeforePause(path, span)), confidence });
  }
  return spans;
}

/** @param {number[]} steps @returns {Map<number, [number, number]>} */
function firstStretches(steps) {
  const found = new Map();
  let begin = 0;
  steps.forEach((place, step) => {
    if (step + 1 < steps.length && steps[step + 1] === place) return;
    if (!found.has(place)) found.set(place, [begin, step]);
    begin = step + 1;
  });
  return found;
}

/** @param {Float64Array[]} later @param {number} step @param {number} place */
function boundary(later, step, place) {
  const first = Math.max(0, step - 1);
  const after = total(later.slice(first, step + 1).map((shares) => shares[place]));
  return Math.min(Math.max(Math.min(step + 1, later.length) - after, first), step + 1);
}

/** Where a word ends: sound near the end of its attention is of it. @param {Path} path @param {AttendedSpan} span */
function endBeforePause({ places, steps, audible, knowsSound }, { lastStep, start, end }) {
  if ((lastStep + 1 < steps.length && places.isWord[steps[lastStep + 1]]) || !knowsSound) return end;
  let usual = (end - LAG_STEPS) * FRAMES_PER_STEP;
  const first = Math.max(Math.trunc((start - LAG_STEPS) * FRAMES_PER_STEP) + MIN_FRAMES_OF_WORD, 0);
  const lastHeard = audible.subarray(first, (lastStep + 1) * FRAMES_PER_STEP).findLastIndex((share) => share > 0);
  if (lastHeard >= 0) usual = Math.min(usual, first + lastHeard + 1 + MAX_CLOSURE_FRAMES);
  const stop = Math.min(Math.trunc(usual) + FARTHEST_END, audible.length);
  if (stop <= first) return end;
  let [best, highest, gain] = [first, -Infinity, 0];
  for (let frame = first; frame <= stop; frame++) {
    const score = gain - 0.5 * ((frame - usual) / END_SPREAD) ** 2;
    if (score > highest) [best, highest] = [frame, score];
    gain += audible[frame] - DOUBTFUL_SOUND;
  }
  return (best + FRAMES_AFTER_SOUND) / FRAMES_PER_STEP + LAG_STEPS;
}

/**
 * The words of a take with times from its first audible sample, up to the last that was said.
 * @param {string[]} characters of the sentence
 * @param {[string, number, number][]} forms written words and their places; empty: each word is written as spoken
 * @param {TimedSpan[]} spans
 * @param {number} stepSeconds
 * @param {[number, number]} audible seconds in which the take is audible, from its first step
 * @returns {Word[]}
 */
export function wordsOf(characters, forms, spans, stepSeconds, [begin, end]) {
  const said = (/** @type {number} */ from, /** @type {number} */ to) => characters.slice(from, to).join("");
  const groups = forms.length
    ? forms
    : spans.map(({ first, last }) => /** @type {[string, number, number]} */ ([said(first, last), first, last]));
  const seconds = (/** @type {number} */ steps) =>
    round(Math.min(Math.max(steps * stepSeconds - LAG_SECONDS, begin), end) - begin);
  /** @type {Word[]} */
  const words = [];
  /** @type {{written: string, spoken: string}[]} */
  let unattended = [];
  for (const [written, from, to] of groups) {
    const inside = spans.filter(({ first }) => from <= first && first < to);
    const form = { written, spoken: said(from, to) };
    if (!inside.length) {
      unattended.push(form);
      continue;
    }
    const start = seconds(inside[0].start);
    const confidence = round(total(inside.map((span) => span.confidence)) / inside.length);
    words.push(...unattended.map((one) => ({ ...one, start, end: start, confidence: 0 })));
    words.push({ ...form, start, end: seconds(inside[inside.length - 1].end), confidence });
    unattended = [];
  }
  return withLeastDurations(words, end - begin);
}

/** @param {Word[]} words @param {number} seconds of the take */
function withLeastDurations(words, seconds) {
  words.forEach((word, index) => {
    const letters = [...word.spoken].filter((character) => /[\p{L}\p{N}]/u.test(character)).length;
    if (word.end - word.start >= MIN_WORD_SECONDS || (!word.confidence && letters >= MIN_SKIPPED_LETTERS)) return;
    const [before, after] = [words[index - 1], words[index + 1]];
    let { start } = word;
    let end = Math.min(word.start + MIN_WORD_SECONDS, seconds);
    if (after && after.start < end) {
      if (after.end - end >= MIN_WORD_SECONDS) after.start = round(end);
      else end = Math.max(after.start, word.end);
    }
    start = Math.max(0, Math.min(start, end - MIN_WORD_SECONDS));
    if (before && before.end > start) {
      start = Math.max(start, Math.min(before.end, before.start + MIN_WORD_SECONDS));
      before.end = round(Math.min(before.end, start));
    }
    [word.start, word.end] = [round(start), round(Math.max(start, end))];
  });
  return words;
}
