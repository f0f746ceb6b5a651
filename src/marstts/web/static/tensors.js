// @ts-check
// Tensors for ONNX Runtime.

/** @import {Runtime, Tensor} from "./types.js" */

/**
 * Makes tensors of one runtime.
 */
export class Tensors {
  /** @param {Runtime} runtime */
  constructor(runtime) {
    this.runtime = runtime;
  }

  /** @param {ArrayLike<number>} values @param {number[]} dims @returns {Tensor} */
  floats(values, dims) {
    return new this.runtime.Tensor("float32", values instanceof Float32Array ? values : Float32Array.from(values), dims);
  }

  /** @param {ArrayLike<number>} values @param {number[]} dims @returns {Tensor} */
  doubles(values, dims) {
    return new this.runtime.Tensor("float64", Float64Array.from(values), dims);
  }

  /** @param {ArrayLike<number>} values @param {number[]} dims @returns {Tensor} */
  integers(values, dims) {
    return new this.runtime.Tensor("int64", BigInt64Array.from(Array.from(values, BigInt)), dims);
  }

  /** @param {boolean[]} values @param {number[]} dims @returns {Tensor} */
  booleans(values, dims) {
    return new this.runtime.Tensor("bool", Uint8Array.from(values, Number), dims);
  }
}
