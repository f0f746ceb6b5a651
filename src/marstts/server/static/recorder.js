// Records the microphone, without the browser's processing, as a WAV file.

import { wavFile } from "./wav.js";

export const peakOf = (samples) => samples.reduce((peak, value) => Math.max(peak, Math.abs(value)), 0);

export class Recorder {
  // `onBlock` gets the peak of each block, 0 to 1, and its seconds.
  static async start(onBlock) {
    if (!navigator.mediaDevices) {
      throw new Error("This browser records only on https or on http://localhost; choose a file instead.");
    }
    const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };
    const recorder = new Recorder();
    recorder.stream = await navigator.mediaDevices.getUserMedia({ audio }).catch(({ name }) => {
      throw new Error(
        name === "NotAllowedError"
          ? "The browser does not allow the microphone on this page; allow it, or choose a file."
          : "No microphone was found; choose a file instead.",
      );
    });
    recorder.context = new AudioContext();
    await recorder.context.audioWorklet.addModule(new URL("./recorder-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(recorder.context, "recorder");
    recorder.blocks = [];
    node.port.onmessage = ({ data }) => {
      if (recorder.context.state === "closed" || !recorder.stream.active) return; // it has been stopped
      recorder.blocks.push(data);
      onBlock(peakOf(data), data.length / recorder.context.sampleRate);
    };
    recorder.context.createMediaStreamSource(recorder.stream).connect(node);
    node.connect(recorder.context.destination); // silence; nodes that lead nowhere may not run
    return recorder;
  }

  async stop() {
    this.stream.getTracks().forEach((track) => track.stop());
    const rate = this.context.sampleRate;
    await this.context.close();
    const samples = new Int16Array(this.blocks.reduce((sum, block) => sum + block.length, 0));
    let at = 0;
    for (const block of this.blocks) {
      for (const value of block) samples[at++] = Math.round(Math.max(-1, Math.min(1, value)) * 32767);
    }
    return wavFile([samples], rate);
  }
}
