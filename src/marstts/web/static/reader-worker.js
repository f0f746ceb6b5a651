// @ts-check
// The worker that reads texts: the package's own reader, in Python, by Pyodide.

/** @import {Part} from "./loading.js" */

import { serve } from "./calls.js";
import { addressOf, counted, download } from "./loading.js";
import { Told } from "./told.js";

/** @type {(request: string) => string} */
let answer = () => "";

serve({
  /**
   * Start Python; gives the counts of bytes as they come.
   * @param {{parts: Part[], tokenizer: string, settings: object}} site
   */
  async open({ parts, tokenizer, settings }, give) {
    const plain = self.fetch.bind(self);
    self.fetch = async (...request) => counted(await plain(...request), give); // Pyodide's own downloads
    const address = addressOf(parts, "pyodide.mjs");
    const { loadPyodide } = await import(address);
    const [python, modules] = await Promise.all([
      loadPyodide({ indexURL: address.slice(0, address.lastIndexOf("/") + 1) }),
      download(addressOf(parts, "reader.zip"), () => {}),
    ]);
    python.unpackArchive(modules, "zip", { extractDir: "/reader" });
    python.globals.set("tokenizer", tokenizer);
    python.globals.set("settings", JSON.stringify(settings));
    answer = python.runPython(`
import sys
sys.path.insert(0, "/reader")
import json
from marstts.web.reader import Reader
reader = Reader(tokenizer, json.loads(settings))
reader.answer(json.dumps({"sentences": "Ready."}))
reader.answer
`);
    return python.runPython("sys.version.split()[0]");
  },

  /** Answer `Reader.answer`'s requests. @param {object} request */
  async ask(request) {
    const found = JSON.parse(answer(JSON.stringify(request)));
    if (found.error) throw new Told(found.error);
    return found;
  },
});
