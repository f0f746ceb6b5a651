// @ts-check
// Keys and values of the global decoder: buffers with room for later positions, as `mars6.engines.row_caches`.

/** @import {ModelSizes} from "./types.js" */

const CAPACITY_STEP = 64; // positions that a cache grows by

export class DecoderCache {
  length = 0;
  capacity = 0;
  /** @type {Float32Array[]} */
  buffers = []; // keys of each layer, then values of each: heads × capacity × head width

  /** @param {ModelSizes} sizes */
  constructor({ layers, heads, width }) {
    this.layers = layers;
    this.heads = heads;
    this.headWidth = width / heads;
    this.buffers = Array.from({ length: 2 * layers }, () => new Float32Array(0));
  }

  /**
   * Add positions: what the graph calls `cache`, (2, layers, 1, heads, positions, head width).
   * @param {Float32Array} entries @param {number} positions
   */
  append(entries, positions) {
    if (this.length + positions >= this.capacity) this.grow(this.length + positions + 1);
    const stretch = positions * this.headWidth;
    this.buffers.forEach((buffer, index) => {
      for (let head = 0; head < this.heads; head++) {
        const from = (index * this.heads + head) * stretch;
        buffer.set(entries.subarray(from, from + stretch), (head * this.capacity + this.length) * this.headWidth);
      }
    });
    this.length += positions;
  }

  /** @param {number} positions */
  grow(positions) {
    const capacity = Math.ceil(positions / CAPACITY_STEP) * CAPACITY_STEP;
    this.buffers = this.buffers.map((buffer) => {
      const larger = new Float32Array(this.heads * capacity * this.headWidth);
      for (let head = 0; head < this.heads; head++) {
        const from = head * this.capacity * this.headWidth;
        larger.set(buffer.subarray(from, from + this.length * this.headWidth), head * capacity * this.headWidth);
      }
      return larger;
    });
    this.capacity = capacity;
  }

  // What is added to the scores: 0 for positions that are there, minus infinity for the room behind them.
  get bias() {
    return new Float32Array(this.capacity).fill(-Infinity, this.length);
  }
}
