// Sends blocks of samples of the microphone to the page.

class RecorderProcessor extends AudioWorkletProcessor {
  process([channels]) {
    if (channels.length > 0) this.port.postMessage(channels[0].slice());
    return true;
  }
}

registerProcessor("recorder", RecorderProcessor);
