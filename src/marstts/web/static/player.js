// @ts-check
// The one player of the page: a sound that may still be growing, through an AudioWorklet.

import { wavFile } from "./wav.js";

const WAV_HEADER = 44; // bytes

/** A growing sound. When it is complete it is a file, which the browser may move out of memory. */
export class Sound {
  /** @type {Float32Array[]} */
  pieces = [];
  /** @type {Blob | null} */
  file = null;
  length = 0;
  isComplete = false;

  /** @param {number} rate */
  constructor(rate) {
    this.rate = rate;
  }

  /** @param {Float32Array} samples */
  push(samples) {
    this.pieces.push(samples);
    this.length += samples.length;
    if (player.sound === this) player.feed(samples);
  }

  complete() {
    this.isComplete = true;
    this.file = this.wav();
    this.pieces = [];
    if (player.sound === this) player.node?.port.postMessage({ isWhole: true });
  }

  get seconds() {
    return this.length / this.rate;
  }

  /** All samples of a complete sound from one on. @param {number} first @returns {Promise<Float32Array>} */
  async from(first) {
    const integers = new Int16Array(await this.wav().slice(WAV_HEADER + 2 * first).arrayBuffer());
    return Float32Array.from(integers, (value) => value / 32767);
  }

  /** The samples of a sound that grows. */
  known() {
    const all = new Float32Array(this.length);
    let at = 0;
    for (const piece of this.pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  /** As a WAV file of 16-bit integers. @returns {Blob} */
  wav() {
    const integers = () => Int16Array.from(this.known(), (value) => Math.round(Math.max(-1, Math.min(1, value)) * 32767));
    return this.file ?? wavFile([integers()], this.rate);
  }
}

/** Called with the position in seconds and whether the sound still plays. @typedef {(position: number, isPlaying: boolean) => void} Follow */

class Player {
  /** @type {Sound | null} */
  sound = null;
  /** @type {AudioWorkletNode | null} */
  node = null;
  /** @type {Promise<AudioContext> | null} */
  opened = null;
  /** @type {Follow} */
  follow = () => {};
  position = 0;
  call = 0; // of `play`: only the last one goes on

  /** The browser's output; opened at the click, so that the first audio does not wait for it. @param {number} rate */
  async open(rate) {
    this.opened ??= opened(rate);
    const context = await this.opened.catch((error) => {
      this.opened = null; // another try may do
      throw error;
    });
    await context.resume();
    return context;
  }

  /** Play from a second on, and what is added meanwhile. @param {Sound} sound @param {number} from @param {Follow} follow */
  async play(sound, from, follow) {
    this.stop();
    Object.assign(this, { sound, follow, position: from });
    const call = this.call;
    const first = Math.round(from * sound.rate);
    const context = await this.open(sound.rate);
    const samples = sound.isComplete ? await sound.from(first) : sound.known().subarray(first); // no piece comes in between
    if (this.call !== call) return; // it was stopped meanwhile
    const node = new AudioWorkletNode(context, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.node = node;
    node.port.onmessage = ({ data: { played, isDone } }) => {
      if (this.node !== node) return;
      this.position = (first + played) / sound.rate - (context.outputLatency ?? 0);
      if (isDone) this.finish();
      else follow(Math.max(from, this.position), true);
    };
    node.connect(context.destination);
    this.feed(samples);
    if (sound.isComplete) node.port.postMessage({ isWhole: true });
  }

  /** @param {Float32Array} samples */
  feed(samples) {
    this.node?.port.postMessage({ samples: samples.slice() });
  }

  // It was played to its end: from the beginning the next time.
  finish() {
    const { follow } = this;
    this.leave();
    follow(0, false);
  }

  stop() {
    const { follow, position, sound } = this;
    if (!sound) return;
    this.leave();
    follow(position, false);
  }

  leave() {
    this.call += 1;
    this.node?.port.postMessage({ isOver: true });
    this.node?.disconnect();
    this.node = null;
    this.sound = null;
  }
}

/** @param {number} rate */
async function opened(rate) {
  const context = new AudioContext({ sampleRate: rate });
  await context.audioWorklet.addModule(new URL("./player-worklet.js", import.meta.url));
  return context;
}

export const player = new Player();
