// @ts-check
// One take of a sentence: patches are made, decoded as soon as they can be, trimmed, limited, and looked at for flaws.

/** @import {Codec} from "./codec.js" */
/** @import {Engine} from "./engine.js" */
/** @import {Attempted} from "./backoff.js" */
/** @import {Row} from "./generate.js" */
/** @import {Backoff, Sampling, Sentence, Voice, Word} from "./types.js" */

import { audibleFrames } from "./audible.js";
import { limits } from "./backoff.js";
import { joined, Trimmer } from "./edges.js";
import { findFlaws } from "./flaws.js";
import { generate } from "./generate.js";
import { Guard } from "./guard.js";
import { Limiter } from "./limiter.js";
import { loudness } from "./loudness.js";
import { searchPath } from "./path.js";
import { SentencePlaces } from "./places.js";
import { withOffset } from "./style.js";
import { timedSpans, wordsOf } from "./words.js";

const FIRST_CHUNK_PATCHES = 2;
const MAX_CHUNK_PATCHES = 24;

/**
 * What makes takes.
 * @typedef {object} Model
 * @property {Engine} engine
 * @property {Codec} codec
 * @property {Backoff} backoff
 * @property {Sampling} sampling
 * @property {() => Promise<void>} breathe is awaited after every patch; an error that it throws ends the speech
 */

/**
 * @typedef {object} TakeOptions
 * @property {Sentence} sentence
 * @property {Voice} voice
 * @property {number} topP
 * @property {() => number} uniform
 * @property {boolean} mayGiveUp
 * @property {number} minPatches more than the limit where takes before it were too short
 */

/** A piece of a take. @typedef {{samples: Float32Array, words: Word[]}} Piece */

export class Take {
  /** @type {Float32Array[]} */
  pieces = []; // decoded
  /** @type {Float32Array[]} */
  released = []; // trimmed and limited
  trimmed = 0; // samples that were not trimmed away
  patches = 0;
  decodedPatches = 0;
  /** @type {Word[]} */
  words = [];

  /** @param {Model} model @param {TakeOptions} options */
  constructor(model, options) {
    this.model = model;
    this.options = options;
    const { sampleRate } = model.codec.sizes;
    this.places = new SentencePlaces(options.sentence.text, options.sentence.spans);
    this.characters = this.places.characters.length;
    this.trimmer = new Trimmer(sampleRate);
    this.limiter = new Limiter(sampleRate);
  }

  /**
   * Make it; gives the pieces that can be sent while it is made, and the rest at the end.
   * @returns {AsyncGenerator<Piece, Attempted>}
   */
  async *make() {
    const { engine, codec, backoff, sampling } = this.model;
    const { sentence, voice, topP, uniform, mayGiveUp, minPatches } = this.options;
    const bounds = limits(backoff, this.characters, codec.sizes.patchRate);
    const { identity, style } = voice.embeddings;
    const request = {
      prompt: { ids: sentence.ids, identity, style: withOffset(style, engine.sizes.styleOffset) },
      topP,
      limits: { min: Math.min(Math.max(bounds.min, minPatches), bounds.max), max: bounds.max },
      sampling,
      uniform,
    };
    const guard = engine.sizes.hasWordTimes ? new Guard(this.places, mayGiveUp) : null;
    const decoding = codec.decoding(voice.embeddings.timbre);
    let chunk = FIRST_CHUNK_PATCHES;
    /** @type {Row} */
    let last = { patches: [], attention: [], stop: "patch limit" };
    for await (const row of generate(engine, request)) {
      last = row;
      await this.model.breathe();
      guard?.check(row);
      const ready = row.patches.length - codec.sizes.lookaheadPatches;
      const stop = row.stop ? row.patches.length : this.decodedPatches + chunk;
      if (!row.stop && stop > ready) continue;
      const codes = row.patches.map((tokens) => engine.codes(tokens));
      const samples = codes.length ? await decoding.decodeUntil(codes, stop) : new Float32Array(0);
      chunk = Math.min(2 * chunk, MAX_CHUNK_PATCHES);
      this.decodedPatches = stop;
      const piece = this.push(samples, row);
      if (piece.samples.length || row.stop) yield piece;
    }
    return this.ended(last);
  }

  /** @param {Float32Array} samples @param {Row} row @returns {Piece} */
  push(samples, row) {
    this.pieces.push(samples);
    let trimmed = this.trimmer.push(samples);
    if (row.stop) trimmed = joined([trimmed, this.trimmer.finish()]);
    this.trimmed += trimmed.length;
    let released = this.limiter.push(trimmed);
    if (row.stop) released = joined([released, this.limiter.finish()]);
    this.released.push(released);
    this.words = this.wordsOf(row);
    return { samples: released, words: this.words };
  }

  /** The path of the attention so far. @param {Row} row */
  path(row) {
    const { patchSamples } = this.model.codec.sizes;
    const sound = audibleFrames(joined(this.pieces), patchSamples);
    const isWhole = Boolean(row.stop);
    const known = isWhole ? row.attention : row.attention.slice(0, this.decodedPatches);
    return searchPath(this.places, known, sound);
  }

  /** The words whose end is known. @param {Row} row */
  wordsOf(row) {
    if (!row.attention.length || this.trimmer.start === null) return [];
    const { sampleRate, patchRate } = this.model.codec.sizes;
    const start = this.trimmer.start;
    const spans = timedSpans(this.path(row), row.stop ? Infinity : this.decodedPatches - 1);
    const audible = /** @type {[number, number]} */ ([start / sampleRate, (start + this.trimmed) / sampleRate]);
    return wordsOf(this.places.characters, row.stop ? this.options.sentence.forms : this.formsOf(spans), spans, 1 / patchRate, audible);
  }

  /** The forms up to the last word that was said. @param {{first: number}[]} spans */
  formsOf(spans) {
    const last = spans.length ? spans[spans.length - 1].first : -1;
    return this.options.sentence.forms.filter(([, from]) => from <= last);
  }

  /** All samples. */
  get samples() {
    return joined(this.released);
  }

  /** @param {Row} row @returns {Attempted} */
  ended(row) {
    const { samples } = this;
    const { sampleRate } = this.model.codec.sizes;
    this.patches = row.patches.length;
    const flaws = row.attention.length ? findFlaws(this.path(row), row.patches, row.stop === "end of speech") : [];
    return {
      characters: this.characters,
      seconds: samples.length / sampleRate,
      loudness: samples.length ? loudness(samples, sampleRate) : -Infinity,
      stop: row.stop ?? "patch limit",
      flaws,
    };
  }
}
