// @ts-check
// Calls across a worker's border: a method and its argument in, an answer or a sentence about what went wrong out.

import { sentenceOf } from "./told.js";

/**
 * Serve the methods of a worker. A method may give several answers by `give`; what it returns is the last.
 * @param {Record<string, (argument: any, give: (answer: any, transfer?: Transferable[]) => void) => Promise<any>>} methods
 */
export function serve(methods) {
  addEventListener("message", async (event) => {
    const { id, method, argument } = /** @type {MessageEvent} */ (event).data;
    const post = (/** @type {object} */ message, /** @type {Transferable[]} */ transfer = []) =>
      postMessage(message, { transfer });
    try {
      const answer = await methods[method](argument, (part, transfer) => post({ id, part }, transfer));
      post({ id, answer });
    } catch (error) {
      post({ id, error: sentenceOf(error) });
    }
  });
}

/** A worker whose methods can be called. */
export class Callee {
  number = 0;
  /** @type {Map<number, {resolve: (answer: any) => void, reject: (error: Error) => void, onPart: (part: any) => void}>} */
  waiting = new Map();

  /** @param {string} file */
  constructor(file) {
    this.worker = new Worker(new URL(file, import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data: { id, answer, part, error } }) => {
      const call = this.waiting.get(id);
      if (!call) return;
      if (part !== undefined) return call.onPart(part);
      this.waiting.delete(id);
      if (error === undefined) call.resolve(answer);
      else call.reject(new Error(error));
    };
    this.worker.onerror = (event) => {
      const error = new Error(`The page could not start: ${event.message || "a part of it is missing"}; reload it.`);
      for (const { reject } of this.waiting.values()) reject(error);
      this.waiting.clear();
    };
  }

  /**
   * @param {string} method @param {any} argument @param {(part: any) => void} onPart
   * @returns {Promise<any>}
   */
  call(method, argument, onPart = () => {}) {
    const id = this.number++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, onPart });
      this.worker.postMessage({ id, method, argument });
    });
  }
}
