// @ts-check
// Types that several modules use; no code.

/**
 * ONNX Runtime, as far as it is used: the module `ort.wasm.min.mjs`.
 * @typedef {object} Runtime
 * @property {new (type: string, data: any, dims: readonly number[]) => Tensor} Tensor
 * @property {{create(bytes: Uint8Array, options?: object): Promise<Session>}} InferenceSession
 */

/** @typedef {{data: any, dims: readonly number[]}} Tensor */

/**
 * @typedef {object} Session
 * @property {readonly string[]} outputNames
 * @property {(feeds: Record<string, Tensor>) => Promise<Record<string, Tensor>>} run
 */

/**
 * Sizes of the model, in `site.json`.
 * @typedef {object} ModelSizes
 * @property {string} label
 * @property {number} codebookSize codes of each level
 * @property {number[]} patchLayout codes of each level in a patch, coarse to fine
 * @property {number} width
 * @property {number} heads
 * @property {number} layers of the global decoder
 * @property {boolean} hasWordTimes
 * @property {number[]} styleOffset
 */

/**
 * Sizes of the codec, in `site.json`. Frames are spectral frames, latents two frames each.
 * @typedef {object} CodecSizes
 * @property {number} sampleRate
 * @property {number} fftSize
 * @property {number} hop
 * @property {number} padding
 * @property {number} overlap
 * @property {number} numMels
 * @property {number} latentsPerPatch
 * @property {number} patchSamples
 * @property {number} patchRate
 * @property {number} lookaheadPatches
 * @property {number} hiddenReach
 * @property {number} filtersReach
 * @property {number[]} pitchReach patches before and after
 * @property {number} minPitchPatches
 * @property {number} decoderWidth
 * @property {number} timbreWidth
 * @property {number} timbreMels
 * @property {number} maxLogGain
 */

/**
 * `generation.request.SamplingConfig`.
 * @typedef {{topP: number, rasWindow: number, rasMaxRatio: number}} Sampling
 */

/**
 * `synthesis.backoff.BackoffConfig`.
 * @typedef {object} Backoff
 * @property {number} attempts
 * @property {number} topPStep
 * @property {number} onsetSeconds
 * @property {number} maxCharsPerSecond
 * @property {number} typicalCharsPerSecond
 * @property {number} minCharsPerSecond
 * @property {number} slackSeconds
 * @property {number} maxLengthFactor
 * @property {number} minLoudness
 */

/**
 * A sentence as the reader gives it; places count code points.
 * @typedef {object} Sentence
 * @property {string} text
 * @property {string} readable
 * @property {string} mark its last punctuation mark, "" without one
 * @property {string | null} voice
 * @property {number} lead seconds of silence before it
 * @property {number} pause seconds of silence after it, in addition to the usual ones
 * @property {[string, number, number][]} forms written word, first place and last + 1
 * @property {number[]} ids tokens of its prompt
 * @property {[number, number][]} spans places of each token, -1 for none
 */

/**
 * @typedef {object} Voice
 * @property {string} name
 * @property {{identity: number[], style: number[], timbre: number[]}} embeddings
 */

/**
 * A word and when it is said, in seconds.
 * @typedef {{written: string, spoken: string, start: number, end: number, confidence: number}} Word
 */

export {};
