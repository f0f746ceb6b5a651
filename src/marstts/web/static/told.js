// @ts-check
// What a person is told of an error.

/** An error whose message is a sentence for the person who uses the page, and may quote what they wrote. */
export class Told extends Error {}

const NO_MEMORY = /out of memory|bad_alloc|MemoryError|\ballocat|\bOOM\b|memory access out of bounds/;

/** What a person can be told of an error. @param {unknown} error */
export function sentenceOf(error) {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof Told) return message;
  const lines = message.trim().split("\n");
  const said = lines[0].startsWith("Traceback") ? lines[lines.length - 1] : lines[0]; // Python's last line says what it is
  if (NO_MEMORY.test(message)) return "This device has too little memory for the model: close other tabs and reload the page.";
  if (/WebAssembly|wasm/i.test(message)) return `This browser cannot run the model; try a newer one. (${said.slice(0, 200)})`;
  return said.slice(0, 400);
}
