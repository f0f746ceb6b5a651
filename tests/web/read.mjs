// Reads texts with the packed reader in Pyodide. Usage: node read.mjs PYODIDE READER.ZIP GIVEN.JSON
// GIVEN has a tokenizer, settings and requests; prints the answers as JSON.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, packed, given] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(folder, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: folder + path.sep });
python.unpackArchive(new Uint8Array(fs.readFileSync(packed)), "zip", { extractDir: "/reader" });
const { tokenizer, settings, requests } = JSON.parse(fs.readFileSync(given, "utf-8"));
python.globals.set("tokenizer", tokenizer);
python.globals.set("settings", JSON.stringify(settings));
const answer = python.runPython(`
import sys
sys.path.insert(0, "/reader")
import json
from marstts.web.reader import Reader
Reader(tokenizer, json.loads(settings)).answer
`);
console.log(JSON.stringify(requests.map((request) => JSON.parse(answer(JSON.stringify(request))))));
