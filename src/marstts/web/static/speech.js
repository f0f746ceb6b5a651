// @ts-check
// The speech of a text: its sentences one after another, with pauses between them.

/** @import {Model} from "./take.js" */
/** @import {Sentence, Voice, Word} from "./types.js" */

import { say } from "./sentence.js";
import { Told } from "./told.js";

const SENTENCE_PAUSE_SECONDS = 0.3;
const CLAUSE_PAUSE_SECONDS = 0.15;
const WORD_PAUSE_SECONDS = 0.05;

/**
 * Audio, and the words of its sentence so far with times from the beginning of the speech.
 * @typedef {object} Chunk
 * @property {Float32Array} samples
 * @property {Word[]} words of this sentence: they take the place of those that came before for it
 * @property {number} sentence number, from 0
 * @property {boolean} isLast of its sentence
 * @property {string} warning
 */

/** Seconds of silence after a sentence, by its last mark. @param {string} mark */
export function pauseAfter(mark) {
  if (mark && ".!?".includes(mark)) return SENTENCE_PAUSE_SECONDS;
  return mark && ",;:—-".includes(mark) ? CLAUSE_PAUSE_SECONDS : WORD_PAUSE_SECONDS;
}

/**
 * Speak sentences; each is said by the voice it names, else by `voice`.
 * @param {Model} model @param {Sentence[]} sentences @param {Voice} voice @param {Record<string, Voice>} voices
 * @param {number} seed
 * @param {() => number} clock seconds
 * @returns {AsyncGenerator<Chunk, void>}
 */
export async function* speak(model, sentences, voice, voices, seed, clock) {
  const { sampleRate } = model.codec.sizes;
  let sent = 0; // samples
  let started = 0; // when the first ones were sent
  let costs = 1; // seconds that a second of audio takes to make
  const silence = (/** @type {number} */ seconds) => new Float32Array(Math.max(0, Math.round(seconds * sampleRate)));
  const mayWait = (/** @type {number} */ left) => sent > 0 && sent / sampleRate - (clock() - started) > 1.2 * costs * left + 0.2;
  for (const [number, sentence] of sentences.entries()) {
    if (sentence.voice !== null && !Object.hasOwn(voices, sentence.voice)) throw new Told(`There is no voice called ${sentence.voice}.`);
    const speaker = sentence.voice === null ? voice : voices[sentence.voice];
    const isFinal = number === sentences.length - 1;
    const lead = silence(sentence.lead);
    if (lead.length) {
      sent += lead.length;
      yield { samples: lead, words: [], sentence: number, isLast: false, warning: "" };
    }
    const [from, begun] = [sent, clock()];
    for await (const said of say(model, sentence, speaker, [seed, number], mayWait)) {
      if (!started && said.samples.length) started = clock();
      sent += said.samples.length;
      const shift = from / sampleRate;
      const words = said.words.map((word) => ({ ...word, start: word.start + shift, end: word.end + shift }));
      if (said.samples.length || said.isLast) yield { samples: said.samples, words, sentence: number, isLast: said.isLast, warning: said.warning };
    }
    if (sent > from) costs = Math.max(0.1, (clock() - begun) / ((sent - from) / sampleRate));
    const pause = silence(sentence.pause + (isFinal ? 0 : pauseAfter(sentence.mark)));
    sent += pause.length;
    if (pause.length) yield { samples: pause, words: [], sentence: number, isLast: false, warning: "" };
  }
}
