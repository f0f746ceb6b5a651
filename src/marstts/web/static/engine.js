// @ts-check
// The engine: MARS6 by ONNX Runtime, one patch after another, as `mars6.engines.onnx` for a single row.

/** @import {ModelSizes, Runtime, Session, Tensor} from "./types.js" */

import { DecoderCache } from "./caches.js";
import { Tensors } from "./tensors.js";

const NUM_SLOTS = 2; // places of the memory before the first text token: the voice
const BEFORE_FIRST = -100; // stands for a token of the start vector's patch

/**
 * The input of a sentence.
 * @typedef {{ids: number[], identity: ArrayLike<number>, style: ArrayLike<number>}} Prompt
 */

/**
 * All that decides the next patch besides the model.
 * @typedef {object} SamplingInputs
 * @property {ArrayLike<number>} uniforms two random numbers in [0, 1) for each position
 * @property {number} topP
 * @property {boolean} mayEnd
 * @property {number[]} recent the last L0 codes, padded in front with -1
 * @property {number} maxRatio
 */

/**
 * The state of an utterance. `append` changes its cache: only the newest state may be used.
 * @typedef {object} State
 * @property {Float32Array} vectors what the next patch is made from
 * @property {Float32Array | null} attention to each text token; null from a model without word times
 * @property {Record<string, Tensor>} memory
 * @property {DecoderCache} cache
 */

export class Engine {
  /**
   * @param {Runtime} runtime
   * @param {{encoder: Session, global: Session, patch: Session}} graphs
   * @param {ModelSizes} sizes
   */
  constructor(runtime, graphs, sizes) {
    this.tensors = new Tensors(runtime);
    this.graphs = graphs;
    this.sizes = sizes;
    this.patchSize = sizes.patchLayout.reduce((sum, count) => sum + count, 0);
    this.endOfSpeech = sizes.patchLayout.length * sizes.codebookSize;
  }

  /**
   * Encode a text: the state before the first patch.
   * @param {Prompt} prompt @returns {Promise<State>}
   */
  async start({ ids, identity, style }) {
    const { tensors, graphs, sizes } = this;
    const outputs = await graphs.encoder.run({
      text_ids: tensors.integers(ids, [1, ids.length]),
      text_lengths: tensors.integers([ids.length], [1]),
      identity: tensors.floats(identity, [1, identity.length]),
      style: tensors.floats(style, [1, style.length]),
    });
    const [keys, values, mask] = graphs.encoder.outputNames.map((name) => outputs[name]);
    const [, , heads, places, width] = keys.dims;
    const size = heads * places * width;
    /** @type {Record<string, Tensor>} */
    const memory = {};
    for (let layer = 0; layer < sizes.layers; layer++) {
      const part = (/** @type {Tensor} */ all) =>
        tensors.floats(all.data.slice(layer * size, (layer + 1) * size), [1, heads, places, width]);
      memory[`memory_keys.${layer}`] = part(keys);
      memory[`memory_values.${layer}`] = part(values);
    }
    const bias = Float32Array.from(mask.data, (isThere) => (Number(isThere) ? 0 : -Infinity));
    memory.memory_bias = tensors.floats(bias, [1, places]);
    const start = { vectors: new Float32Array(0), attention: null, memory, cache: new DecoderCache(sizes) };
    return this.append(start, new Array(this.patchSize).fill(BEFORE_FIRST));
  }

  /**
   * Append a finished patch of tokens: ready for the next one.
   * @param {State} state @param {number[]} tokens @returns {Promise<State>}
   */
  async append({ memory, cache }, tokens) {
    const { tensors, graphs, sizes, patchSize } = this;
    /** @type {Record<string, Tensor>} */
    const feeds = {
      ...memory,
      patches: tensors.integers(tokens, [1, 1, patchSize]),
      first: tensors.integers([cache.length], [1]),
      seen_bias: tensors.floats(cache.bias, [1, cache.capacity]),
    };
    const dims = [1, sizes.heads, cache.capacity, cache.headWidth];
    cache.buffers.forEach((buffer, index) => {
      const kind = index < sizes.layers ? "keys" : "values";
      feeds[`seen_${kind}.${index % sizes.layers}`] = tensors.floats(buffer, dims);
    });
    const outputs = await graphs.global.run(feeds);
    const vectors = Float32Array.from(outputs.vectors.data);
    if (!vectors.every(Number.isFinite)) throw new Error("The model computed no numbers: reload the page.");
    cache.append(outputs.cache.data, 1);
    const attention = sizes.hasWordTimes ? Float32Array.from(outputs.attention.data).subarray(NUM_SLOTS) : null;
    return { vectors, attention, memory, cache };
  }

  /**
   * Sample the next patch: its tokens, all `endOfSpeech` from where speech has ended.
   * @param {State} state @param {SamplingInputs} inputs @returns {Promise<number[]>}
   */
  async samplePatch({ vectors }, { uniforms, topP, mayEnd, recent, maxRatio }) {
    const { tensors, patchSize } = this;
    const outputs = await this.graphs.patch.run({
      vectors: tensors.floats(vectors, [1, vectors.length]),
      uniforms: tensors.doubles(uniforms, [1, patchSize, 2]),
      top_p: tensors.doubles([topP], [1]),
      may_end: tensors.booleans([mayEnd], [1]),
      recent: tensors.integers(recent, [1, recent.length]),
      max_ratio: tensors.doubles([maxRatio], [1]),
    });
    const drawn = Array.from(outputs.tokens.data, Number);
    return [...drawn, ...new Array(patchSize - drawn.length).fill(this.endOfSpeech)];
  }

  /**
   * The codes of a patch of tokens, each within its codebook.
   * @param {number[]} tokens
   */
  codes(tokens) {
    return tokens.map((token) => token % this.sizes.codebookSize);
  }
}
