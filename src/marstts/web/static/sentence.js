// @ts-check
// A sentence: which take is sampled next and which one is kept, as `synthesis.sentence`. A sentence that stays flawed
// is said with other seeds; the package divides it after that, the tab does not.

/** @import {Attempted} from "./backoff.js" */
/** @import {Model} from "./take.js" */
/** @import {Sentence, Voice, Word} from "./types.js" */

import { bestOf, REASONS, rejectionReason, topPSchedule, usual } from "./backoff.js";
import { generator } from "./random.js";
import { Take } from "./take.js";

const REPAIR_SEEDS = 2;

/**
 * A piece of a sentence's audio, or its end: then `words` are all of it, and `warning` says what is wrong with it.
 * @typedef {{samples: Float32Array, words: Word[], isLast: boolean, warning: string, attempts: number}} Said
 */

/** @typedef {Attempted & {take: Take}} Ended */

/**
 * Say a sentence.
 * @param {Model} model @param {Sentence} sentence @param {Voice} voice @param {number[]} seeds
 * @param {(secondsLeft: number) => boolean} mayWait whether a listener has enough to play until so much more audio is
 * made: then nothing is sent before the take is known to be good
 * @returns {AsyncGenerator<Said, void>}
 */
export async function* say(model, sentence, voice, seeds, mayWait) {
  const { backoff, sampling, codec } = model;
  const schedule = topPSchedule(backoff, sampling.topP);
  const attempts = [
    ...schedule.map((topP, number) => ({ topP, seed: number, isRepair: false })),
    ...Array.from({ length: REPAIR_SEEDS }, (_, number) => ({ topP: sampling.topP, seed: 1000 + number, isRepair: true })),
  ];
  /** @type {Ended[]} */
  const refused = [];
  for (const [number, { topP, seed, isRepair }] of attempts.entries()) {
    if (isRepair && !bestOf(refused, backoff).flaws.length) break;
    const short = refused.filter((take) => rejectionReason(take, backoff) === REASONS.short);
    const take = new Take(model, {
      sentence,
      voice,
      topP,
      uniform: generator(...seeds, seed),
      mayGiveUp: number + 1 < schedule.length && number > 0,
      minPatches: Math.max(0, ...short.map((one) => one.take.patches + 1)),
    });
    const pieces = take.make();
    let sent = 0;
    let step = await pieces.next();
    for (; !step.done; step = await pieces.next()) {
      const left = usual(backoff, take.characters) - take.decodedPatches / codec.sizes.patchRate;
      if (sent === 0 && (number > 0 || mayWait(Math.max(left, 0)))) continue;
      const unsent = take.released.slice(sent);
      sent = take.released.length;
      for (const samples of unsent) yield { samples, words: step.value.words, isLast: false, warning: "", attempts: number + 1 };
    }
    const ended = { ...step.value, take };
    const reason = rejectionReason(ended, backoff);
    if (sent > 0) {
      const warning = reason && `“${sentence.readable}” was flawed: ${reason}.`;
      yield { samples: new Float32Array(0), words: take.words, isLast: true, warning, attempts: number + 1 };
      return;
    }
    if (!reason) {
      yield { samples: take.samples, words: take.words, isLast: true, warning: "", attempts: number + 1 };
      return;
    }
    refused.push(ended);
  }
  const best = bestOf(refused, backoff);
  const warning = `“${sentence.readable}”: after ${refused.length} attempts the best take is flawed: ${rejectionReason(best, backoff)}.`;
  yield { samples: best.take.samples, words: best.take.words, isLast: true, warning, attempts: refused.length };
}
