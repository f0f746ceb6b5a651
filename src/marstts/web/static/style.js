// @ts-check
// The offset of style embeddings that a bundle asks for, as `mars6.speech.with_offset`.

/**
 * The embedding plus an offset, scaled to the length it had.
 * @param {number[]} embedding @param {number[]} offset empty for none
 */
export function withOffset(embedding, offset) {
  if (!offset.length) return embedding;
  const length = (/** @type {number[]} */ values) => Math.hypot(...values);
  const moved = embedding.map((value, index) => value + offset[index]);
  return length(moved) > 0 ? moved.map((value) => (value * length(embedding)) / length(moved)) : embedding;
}
