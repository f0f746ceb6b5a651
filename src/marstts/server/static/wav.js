// WAV files of 16-bit mono samples, in pieces.

export function wavFile(pieces, rate) {
  const size = pieces.reduce((sum, piece) => sum + piece.byteLength, 0);
  const header = new DataView(new ArrayBuffer(44));
  const text = (at, word) => [...word].forEach((letter, i) => header.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, 36 + size, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, rate, true);
  header.setUint32(28, rate * 2, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  text(36, "data");
  header.setUint32(40, size, true);
  return new Blob([header.buffer, ...pieces], { type: "audio/wav" });
}
