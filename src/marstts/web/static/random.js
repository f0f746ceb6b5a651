// @ts-check
// Random numbers that depend on their seeds alone: PCG's younger relative sfc32 (C. Doty-Humphrey, PractRand).

/**
 * A function that gives numbers in [0, 1) with 53 random bits.
 * @param {...number} seeds @returns {() => number}
 */
export function generator(...seeds) {
  let [a, b, c, counter] = [0x9e3779b9, 0x243f6a88, 0xb7e15162, 1];
  const next = () => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return sum >>> 0;
  };
  for (const seed of seeds) {
    a ^= seed | 0;
    b ^= Math.floor(seed / 2 ** 32) | 0;
    for (let round = 0; round < 16; round++) next();
  }
  return () => ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
}

/**
 * Normal random numbers, two for two uniform ones (G. Box and M. Muller).
 * @param {() => number} uniform @param {number} count an even number
 */
export function normal(uniform, count) {
  const numbers = new Float32Array(count);
  for (let at = 0; at < count; at += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    const angle = 2 * Math.PI * uniform();
    numbers[at] = radius * Math.cos(angle);
    numbers[at + 1] = radius * Math.sin(angle);
  }
  return numbers;
}
