// @ts-check
// The first run of every graph, which takes several times as long as later ones: the runtime reserves its memory, and the
// browser compiles what runs often. It is made while the page loads, so that the first sentence does not wait for it.

/** @import {Model} from "./take.js" */
/** @import {Sentence, Voice} from "./types.js" */

import { generator } from "./random.js";
import { Take } from "./take.js";

const PATCHES = 12; // decoded in pieces of 2, 4 and the rest

/**
 * Make the beginning of a take and forget it; nothing of it is left in the model.
 * @param {Model} model @param {Sentence} sentence @param {Voice} voice
 */
export async function warmUp(model, sentence, voice) {
  const { topP } = model.sampling;
  const take = new Take(model, { sentence, voice, topP, uniform: generator(0), mayGiveUp: false, minPatches: PATCHES });
  for await (const _ of take.make()) if (take.decodedPatches >= PATCHES) return;
}
