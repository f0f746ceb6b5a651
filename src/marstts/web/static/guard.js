// @ts-check
// The guard of a take that is being made: ends it after its last word, and gives it up where it cannot be saved, as
// `synthesis.words.followed_take`.

import { AT_END, MAX_STEPS_AT_END, MAX_STEPS_IN_WORD, STEPS_PER_LETTER } from "./flaws.js";
import { searchPath } from "./path.js";

/** @import {Row} from "./generate.js" */
/** @import {SentencePlaces} from "./places.js" */

const KEPT_STEPS_AT_END = 2;
const STEPS_FOLLOWED_TOGETHER = 12;

export class Guard {
  firstAtEnd = -1;
  seen = 0;
  nextFollowing = 2 * STEPS_FOLLOWED_TOGETHER;

  /** @param {SentencePlaces} places @param {boolean} mayGiveUp another attempt follows */
  constructor(places, mayGiveUp) {
    this.places = places;
    this.mayGiveUp = mayGiveUp;
  }

  /** Look at a row after a patch; it may be ended. @param {Row} row */
  check(row) {
    if (row.stop) return;
    const { attention } = row;
    for (; this.firstAtEnd < 0 && this.seen < attention.length; this.seen++) {
      const shares = this.places.attention(attention[this.seen]);
      if (shares[this.places.count - 1] >= AT_END) this.firstAtEnd = this.seen;
    }
    if (this.firstAtEnd >= 0 && attention.length - this.firstAtEnd > MAX_STEPS_AT_END) {
      const kept = this.firstAtEnd + KEPT_STEPS_AT_END;
      row.patches.length = Math.min(row.patches.length, kept);
      row.attention.length = row.patches.length;
      row.stop = "last word spoken";
    } else if (this.mayGiveUp && attention.length >= this.nextFollowing && this.isStuck(attention)) {
      row.stop = "given up";
    }
  }

  /** Whether the take stays in one word for longer than any word lasts. @param {Float32Array[]} attention */
  isStuck(attention) {
    this.nextFollowing = attention.length + STEPS_FOLLOWED_TOGETHER;
    const { latest } = searchPath(this.places, attention, null);
    const here = latest[latest.length - 1];
    const before = latest.findLastIndex((place) => place !== here);
    const place = this.places.places[here];
    const most = Math.max(MAX_STEPS_IN_WORD, STEPS_PER_LETTER * place.letters);
    return place.kind === "word" && latest.length - 1 - before > most;
  }
}
