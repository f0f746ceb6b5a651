// @ts-check
// The loop of one take: patch after patch, until speech ends or may not go on, as `generation.loop` for a single row.

/** @import {Sampling} from "./types.js" */
/** @import {Engine, Prompt} from "./engine.js" */
/** @import {Stop} from "./backoff.js" */

const NO_CODE = -1;

/**
 * A take that is being made.
 * @typedef {object} Row
 * @property {number[][]} patches tokens of the patches so far, never end of speech
 * @property {Float32Array[]} attention to the text at each step, the one that ended it included
 * @property {Stop | null} stop
 */

/**
 * @typedef {object} Request
 * @property {Prompt} prompt
 * @property {number} topP
 * @property {{min: number, max: number}} limits patches
 * @property {Sampling} sampling
 * @property {() => number} uniform
 */

/**
 * The row after every patch; the last one has ended. The same object is changed and given again.
 * @param {Engine} engine @param {Request} request @returns {AsyncGenerator<Row, void>}
 */
export async function* generate(engine, { prompt, topP, limits, sampling, uniform }) {
  const perLevel = engine.sizes.patchLayout[0];
  /** @type {Row} */
  const row = { patches: [], attention: [], stop: limits.max > 0 ? null : "patch limit" };
  let recent = new Array(sampling.rasWindow).fill(NO_CODE);
  let state = row.stop ? null : await engine.start(prompt);
  while (!row.stop && state) {
    const tokens = await engine.samplePatch(state, {
      uniforms: Array.from({ length: 2 * engine.patchSize }, uniform),
      topP,
      mayEnd: row.patches.length >= limits.min,
      recent,
      maxRatio: sampling.rasMaxRatio,
    });
    if (state.attention) row.attention.push(state.attention);
    if (tokens.includes(engine.endOfSpeech)) {
      row.stop = "end of speech"; // an unfinished patch is dropped
    } else {
      row.patches.push(tokens);
      recent = [...recent, ...tokens.slice(0, perLevel)].slice(-sampling.rasWindow);
      if (row.patches.length >= limits.max) row.stop = "patch limit";
    }
    yield row;
    if (!row.stop) state = await engine.append(state, tokens);
  }
}
