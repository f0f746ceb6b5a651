// @ts-check
// The places of a sentence that a step can attend to: its start, words, marks between them, its end; and their prices,
// as `synthesis.words.attention_path.SentencePlaces`.

const [MIN_ATTENTION, BACKWARD_PRICE] = [1e-2, 5];
const [SKIP_PRICE, SHORT_SKIP_PRICE, LAST_SKIP_PRICE, SHORT_WORD] = [3, 2, 4, 3];
const [SILENT_WORD_PRICE, AUDIBLE_PAUSE_PRICE, AUDIBLE_END_PRICE, END_GAIN] = [1, 1.75, 1, 16];
const [STEPS_PER_LETTER, STEPS_BEFORE_PAUSE, WEAK_WORD_FACTOR] = [0.7, 2, 0.65];
const WEAK_WORDS = new Set(
  (
    "that this than then them they their there these those with from into upon have been were will would could should " +
    "must does your some such very when what which where because also each only"
  ).split(" "),
);
const [DURATION_SPREAD, MAX_DURATION_PRICE] = [0.4, 6];
export const MAX_DURATION = 16; // steps

/** @typedef {{kind: "start" | "word" | "mark" | "end", start: number, end: number, letters: number}} Place */

const isLetter = (/** @type {string} */ character) => /[\p{L}\p{N}]/u.test(character);
const isSpace = (/** @type {string} */ character) => /\s/.test(character);

/** @param {string[]} characters of the sentence @returns {Place[]} */
export function cutPlaces(characters) {
  /** @type {Place[]} */
  const places = [{ kind: "start", start: 0, end: 0, letters: 0 }];
  for (let at = 0; at < characters.length; ) {
    if (isSpace(characters[at])) {
      at += 1;
      continue;
    }
    const start = at;
    while (at < characters.length && !isSpace(characters[at])) at += 1;
    const letters = characters.slice(start, at).filter(isLetter).length;
    let end = at;
    while (letters && !isLetter(characters[end - 1])) end -= 1;
    if (letters) places.push({ kind: "word", start, end, letters });
    if (!letters) places.push({ kind: "mark", start, end: at, letters: 0 });
    else if (end < at) places.push({ kind: "mark", start: end, end: at, letters: 0 });
  }
  places.push({ kind: "end", start: characters.length, end: characters.length, letters: 0 });
  return places;
}

export class SentencePlaces {
  /**
   * @param {string} sentence
   * @param {[number, number][]} spans characters of each token of its prompt, -1 for others
   */
  constructor(sentence, spans) {
    this.characters = [...sentence];
    this.places = cutPlaces(this.characters);
    this.count = this.places.length;
    this.words = this.places.flatMap(({ kind }, index) => (kind === "word" ? [index] : []));
    this.isWord = this.places.map(({ kind }) => kind === "word");
    const lastWord = this.words.length ? this.words[this.words.length - 1] : -1;
    this.isAfterWords = this.places.map((_, index) => index > lastWord);
    this.owner = this.owners(spans); // place of each token
    this.prices = this.movingPrices(lastWord);
    this.usualSteps = this.places.map((place, index) => this.usual(place, index));
    this.durationPrices = this.usualSteps.map((usual, index) =>
      Array.from({ length: MAX_DURATION }, (_, duration) => {
        if (!this.isWord[index]) return 0;
        const unusual = Math.log((duration + 1) / Math.max(usual, 1)) / DURATION_SPREAD;
        return Math.min(0.5 * unusual ** 2, MAX_DURATION_PRICE);
      }),
    );
  }

  /** The letters of a word. @param {number} index */
  word(index) {
    const { start, end } = this.places[index];
    return this.characters.slice(start, end).join("");
  }

  /** @param {[number, number][]} spans */
  owners(spans) {
    const starts = this.places.slice(1, -1).map(({ start }) => start);
    const known = spans.flatMap(([first], token) => (first >= 0 ? [token] : []));
    const [first, last] = known.length ? [known[0], known[known.length - 1]] : [spans.length, spans.length];
    return spans.map(([from, to], token) => {
      if (token < first) return 0;
      if (token > last) return this.count - 1;
      let at = from;
      while (from >= 0 && at < to - 1 && isSpace(this.characters[at])) at += 1;
      return starts.filter((start) => start <= at).length;
    });
  }

  /** Nats for moving from a place to another. @param {number} lastWord */
  movingPrices(lastWord) {
    const skip = this.places.map(({ kind, letters }, index) => {
      const price = kind === "mark" ? 0 : letters <= SHORT_WORD ? SHORT_SKIP_PRICE : SKIP_PRICE;
      return price + (index === lastWord ? LAST_SKIP_PRICE : 0);
    });
    return this.places.map((_, from) =>
      this.places.map((_, to) => {
        if (to === from) return 0;
        if (to < from) return BACKWARD_PRICE;
        return skip.slice(from + 1, to).reduce((sum, price) => sum + price, 0);
      }),
    );
  }

  /** Usual steps of a place; 0 for what is no word. @param {Place} place @param {number} index */
  usual({ kind, letters }, index) {
    if (kind !== "word") return 0;
    const word = [...this.word(index).toLowerCase()].filter(isLetter).join("");
    const isWeak = letters <= SHORT_WORD || WEAK_WORDS.has(word);
    const steps = letters * STEPS_PER_LETTER * (isWeak ? WEAK_WORD_FACTOR : 1);
    return steps + (this.isWord[index + 1] ? 0 : STEPS_BEFORE_PAUSE);
  }

  /** Attention to each place, of that to each token. @param {Float32Array} step */
  attention(step) {
    const sums = new Float64Array(this.count);
    this.owner.forEach((place, token) => (sums[place] += step[token]));
    return sums;
  }

  /**
   * Evidence for each place in nats; `sound` is how audible the step is, NaN where that is not known.
   * @param {Float64Array} attention @param {number} sound
   */
  weigh(attention, sound) {
    const isKnown = !Number.isNaN(sound);
    const heard = isKnown ? sound : 1;
    return attention.map((share, index) => {
      const seen = isKnown && this.isAfterWords[index] ? Math.min(share * END_GAIN, 1) : share;
      const audible = isKnown ? (this.isAfterWords[index] ? AUDIBLE_END_PRICE : AUDIBLE_PAUSE_PRICE) : 0;
      const price = this.isWord[index] ? SILENT_WORD_PRICE * (1 - heard) : audible * heard;
      return Math.log(Math.max(seen, MIN_ATTENTION)) * heard - price;
    });
  }
}
