// @ts-check
// The most likely path of a take through its sentence, from attention: a Viterbi search with durations, as
// `synthesis.words.attention_path.PathSearch`.

import { FRAMES_PER_STEP } from "./audible.js";
import { MAX_DURATION } from "./places.js";

/** @import {SentencePlaces} from "./places.js" */

/**
 * @typedef {object} Path
 * @property {SentencePlaces} places
 * @property {number[]} steps the place of each step
 * @property {number[]} latest the place where the best path was after each step, as far as was known then
 * @property {Float64Array[]} attention of each step to each place
 * @property {Float32Array} audible frames of all steps; NaN where not known
 * @property {boolean} knowsSound
 * @property {number[]} heard how audible each step is; 1 where that is not known
 */

/**
 * How audible the frames are that a step's attention is about: half a step earlier.
 * @param {Float32Array} audible
 */
function sharesOfSound(audible) {
  const half = FRAMES_PER_STEP / 2;
  return Array.from({ length: audible.length / FRAMES_PER_STEP }, (_, step) => {
    let sum = 0;
    for (let n = 0; n < FRAMES_PER_STEP; n++) sum += audible[Math.max(0, step * FRAMES_PER_STEP + n - half)];
    return sum / FRAMES_PER_STEP;
  });
}

/**
 * @param {SentencePlaces} places
 * @param {Float32Array[]} attention of each step to the tokens
 * @param {Float32Array | null} sound frames of the steps, fewer than there are steps where the last ones are silent;
 * null where that is not known
 * @returns {Path}
 */
export function searchPath(places, attention, sound) {
  const { count } = places;
  const audible = new Float32Array(attention.length * FRAMES_PER_STEP);
  if (sound) audible.set(sound.subarray(0, audible.length));
  else audible.fill(NaN);
  const shares = sharesOfSound(audible);
  const byPlace = attention.map((step) => places.attention(step));
  let scores = Array.from({ length: count }, () => new Float64Array(MAX_DURATION).fill(-Infinity));
  let entered = new Array(count).fill(0); // step in which the longest path entered its place
  /** @type {[number, number][][]} */
  const origins = [];
  /** @type {number[]} */
  const latest = [];
  byPlace.forEach((shown, step) => {
    const evidence = places.weigh(shown, shares[step]);
    const leaving = scores.map((of, place) => {
      let best = 0;
      const left = of.map((score, duration) => score - (sound ? places.durationPrices[place][duration] : 0));
      left.forEach((score, duration) => (best = score > left[best] ? duration : best));
      return { score: left[best], since: best < MAX_DURATION - 1 ? step - 1 - best : entered[place] };
    });
    /** @type {[number, number][]} */
    const origin = [];
    const later = scores.map((of, place) => {
      let [best, from] = [-Infinity, 0];
      leaving.forEach(({ score }, before) => {
        const arrival = before === place ? -Infinity : score - places.prices[before][place];
        if (arrival > best) [best, from] = [arrival, before];
      });
      origin.push([from, leaving[from].since]);
      const row = new Float64Array(MAX_DURATION);
      row[0] = (step ? best : -places.prices[0][place]) + evidence[place];
      for (let duration = 1; duration < MAX_DURATION; duration++) row[duration] = of[duration - 1] + evidence[place];
      const stays = of[MAX_DURATION - 1] > of[MAX_DURATION - 2];
      if (stays) row[MAX_DURATION - 1] = of[MAX_DURATION - 1] + evidence[place];
      else entered[place] = step - MAX_DURATION + 1;
      return row;
    });
    origins.push(origin);
    scores = later;
    latest.push(bestState(scores)[0]);
  });
  return {
    places,
    steps: trace(scores, entered, origins),
    latest,
    attention: byPlace,
    audible,
    knowsSound: sound !== null,
    heard: shares.map((share) => (Number.isNaN(share) ? 1 : share)),
  };
}

/** @param {Float64Array[]} scores @returns {[number, number]} */
function bestState(scores) {
  /** @type {[number, number]} */
  let best = [0, 0];
  scores.forEach((of, place) =>
    of.forEach((score, duration) => {
      if (score > scores[best[0]][best[1]]) best = [place, duration];
    }),
  );
  return best;
}

/** @param {Float64Array[]} scores @param {number[]} longestEntered @param {[number, number][][]} origins */
function trace(scores, longestEntered, origins) {
  let end = origins.length;
  const path = new Array(end).fill(0);
  if (!end) return path;
  let [place, duration] = bestState(scores);
  let entered = duration === MAX_DURATION - 1 ? longestEntered[place] : end - 1 - duration;
  while (end > 0) {
    path.fill(place, Math.max(entered, 0), end);
    end = entered;
    if (end > 0) [place, entered] = origins[end][place];
  }
  return path;
}
