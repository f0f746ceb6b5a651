// @ts-check
// The worker that speaks and clones: the graphs of the model by ONNX Runtime.

/** @import {Part} from "./loading.js" */
/** @import {Runtime, Session, Sentence, Voice} from "./types.js" */
/** @import {Model} from "./take.js" */

import { serve } from "./calls.js";
import { Cloner } from "./cloning.js";
import { Codec } from "./codec.js";
import { Engine } from "./engine.js";
import { addressOf, download } from "./loading.js";
import { resample } from "./resample.js";
import { speak } from "./speech.js";
import { warmUp } from "./warm-up.js";

const MAX_THREADS = 2; // a step is small: more threads wait for each other
const MIN_CORES = 4; // for more than one: threads wait by spinning, which takes the core of whatever else wants to run

/** @type {any} */
let site;
/** @type {any} */
let runtime;
/** @type {Model} */
let model;
/** @type {Cloner | null} */
let cloner = null;
let speaking = 0; // number of the speech that may go on
/** @type {Promise<void>} */
let firstSentence = Promise.resolve(); // of that speech: until it is made

// Let messages come in between two patches: the runtime's promises alone would not.
const channel = new MessageChannel();
/** @type {((value?: any) => void)[]} */
const breathing = [];
channel.port1.onmessage = () => breathing.shift()?.();
const breathe = () => new Promise((resolve) => {
  breathing.push(resolve);
  channel.port2.postMessage(null);
});

/** @param {string[]} names @param {(count: number) => void} onBytes @returns {Promise<any>} */
async function openGraphs(names, onBytes) {
  const files = await Promise.all(names.map((name) => download(addressOf(site.parts, `${name}.onnx`), onBytes)));
  /** @type {Record<string, Session>} */
  const graphs = {};
  for (const [index, name] of names.entries()) {
    await breathe();
    await firstSentence; // whose listener has nothing yet: opening a graph takes all of the worker
    graphs[name] = await runtime.InferenceSession.create(files[index], { executionProviders: ["wasm"] });
  }
  return graphs;
}

serve({
  /** Open what speaking needs; gives `{part, bytes}` as bytes come. @param {any} described */
  async open(described, give) {
    site = described;
    const bytesOf = (/** @type {string} */ part) => (/** @type {number} */ bytes) => give({ part, bytes });
    runtime = await import(addressOf(site.parts, "ort.wasm.min.mjs"));
    const mayShare = self.crossOriginIsolated && navigator.hardwareConcurrency >= MIN_CORES;
    const threads = mayShare ? MAX_THREADS : 1;
    runtime.env.wasm.numThreads = threads;
    runtime.env.wasm.wasmPaths = { mjs: addressOf(site.parts, "ort-wasm-simd-threaded.mjs") };
    runtime.env.wasm.wasmBinary = await download(addressOf(site.parts, "ort-wasm-simd-threaded.wasm"), bytesOf("runtime"));
    const graphs = await openGraphs(["encoder", "global", "patch", "decoder", "filters", "pitch"], bytesOf("speaking"));
    model = {
      engine: new Engine(runtime, graphs, site.model),
      codec: new Codec(runtime, graphs, site.codec),
      backoff: site.backoff,
      sampling: site.sampling,
      breathe: async () => {},
    };
    await warmUp(model, site.warmUp, site.voices[0]);
    return { threads };
  },

  /** Open what cloning needs. */
  async openCloning(_, give) {
    const names = ["identity", "style", "speaker", "timbre"];
    const graphs = await openGraphs(names, (bytes) => give({ part: "cloning", bytes }));
    cloner = new Cloner(runtime, graphs, site.encoders, site.codec, site.cloning, resample);
  },

  /**
   * Speak; gives the chunks as they are made.
   * @param {{sentences: Sentence[], voice: Voice, voices: Record<string, Voice>, seed: number}} text
   */
  async speak({ sentences, voice, voices, seed }, give) {
    const number = ++speaking;
    const check = async () => {
      await breathe();
      if (number !== speaking) throw new Error("stopped");
    };
    const clock = () => performance.now() / 1000;
    const chunks = speak({ ...model, breathe: check }, sentences, voice, voices, seed, clock);
    let begin = () => {};
    firstSentence = new Promise((resolve) => (begin = resolve));
    try {
      for await (const chunk of chunks) {
        give(chunk);
        if (chunk.isLast) begin();
      }
    } finally {
      begin();
    }
  },

  /** End the speech. */
  async stop() {
    speaking++;
  },

  /** The embeddings of a recording at the codec's rate. @param {Float32Array} recording */
  async clone(recording) {
    if (!cloner) throw new Error("Cloning is still loading.");
    return cloner.clone(recording);
  },
});
