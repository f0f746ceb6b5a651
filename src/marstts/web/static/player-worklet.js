// Plays samples as they come; what is missing is silence, and does not count. Says some 25 times a second how far it is.

const BLOCKS_PER_MESSAGE = 8;

class PlayerProcessor extends AudioWorkletProcessor {
  pieces = [];
  at = 0; // in the first piece
  played = 0;
  isWhole = false;
  isOver = false;
  blocks = 0;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => {
      if (data.samples) this.pieces.push(data.samples);
      if (data.isWhole) this.isWhole = true;
      if (data.isOver) this.isOver = true;
    };
  }

  process(_, [[channel]]) {
    if (this.isOver) return false;
    let filled = 0;
    while (filled < channel.length && this.pieces.length) {
      const [piece] = this.pieces;
      const count = Math.min(channel.length - filled, piece.length - this.at);
      channel.set(piece.subarray(this.at, this.at + count), filled);
      filled += count;
      this.at += count;
      if (this.at === piece.length) {
        this.pieces.shift();
        this.at = 0;
      }
    }
    this.played += filled;
    const isDone = this.isWhole && !this.pieces.length;
    if (isDone || this.blocks++ % BLOCKS_PER_MESSAGE === 0) this.port.postMessage({ played: this.played, isDone });
    return !isDone;
  }
}

registerProcessor("player", PlayerProcessor);
