// Sends blocks of samples of the microphone to the page.

const BLOCK = 2048;

class RecorderProcessor extends AudioWorkletProcessor {
  samples = new Float32Array(BLOCK);
  length = 0;

  process([channels]) {
    if (channels.length === 0) return true;
    this.samples.set(channels[0], this.length); // 128 samples at a time
    this.length += channels[0].length;
    if (this.length === BLOCK) {
      this.port.postMessage(this.samples.slice());
      this.length = 0;
    }
    return true;
  }
}

registerProcessor("recorder", RecorderProcessor);
