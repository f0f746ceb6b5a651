// Runs `sentence.js` and `speech.js` on a scripted model, and prints what is said. Usage: node check_sentences.mjs STATIC
// Each attempt of the script is [kind, patches]: the sound of its patches, and when it ends.

import path from "node:path";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(path.join(process.argv[2], name)).href);
const { say } = await load("sentence.js");
const { speak } = await load("speech.js");
const { generator, normal } = await load("random.js");
const { resample } = await load("resample.js");

const RATE = 24000;
const SIZE = 2048;
const backoff = {
  attempts: 3, topPStep: 0.2, onsetSeconds: 0.15, maxCharsPerSecond: 32, typicalCharsPerSecond: 14,
  minCharsPerSecond: 7, slackSeconds: 0.75, maxLengthFactor: 1.5, minLoudness: -52,
};

function scripted(script) {
  const asked = [];
  let attempt = -1;
  let made = 0;
  const engine = {
    sizes: { patchLayout: [1, 2, 4], codebookSize: 16, hasWordTimes: false, styleOffset: [] },
    patchSize: 7,
    endOfSpeech: 48,
    codes: (tokens) => tokens.map((token) => token % 16),
    start: async () => ((attempt += 1), (made = 0), { attention: null }),
    append: async (state) => state,
    samplePatch: async (_, { topP, mayEnd }) => {
      if (!made) asked.push({ topP, patches: 0, mayEndFrom: -1 });
      const here = asked.at(-1);
      if (mayEnd && here.mayEndFrom < 0) here.mayEndFrom = made;
      const [, length] = script[Math.min(attempt, script.length - 1)];
      if (made >= length && mayEnd) return new Array(7).fill(48);
      here.patches = made += 1;
      return [1, 17, 17, 33, 33, 33, 33];
    },
  };
  const codec = {
    sizes: { sampleRate: RATE, patchSamples: SIZE, patchRate: RATE / SIZE, lookaheadPatches: 2 },
    decoding: () => {
      let done = 0;
      return {
        decodeUntil: async (_, stop) => {
          const [kind] = script[Math.min(attempt, script.length - 1)];
          const loud = kind === "silent" ? 0 : 0.3;
          const samples = Float32Array.from({ length: (stop - done) * SIZE }, (_, n) => loud * Math.sin((done * SIZE + n) / 20));
          done = stop;
          return samples;
        },
      };
    },
  };
  const sampling = { topP: 0.2, rasWindow: 10, rasMaxRatio: 0.09 };
  return { asked, model: { engine, codec, backoff, sampling, breathe: async () => {} } };
}

const sentence = { text: "Twenty-eight letters or so.", readable: "…", mark: ".", voice: null, lead: 0, pause: 0, forms: [], ids: [1], spans: [[-1, -1]] };
const voice = { name: "one", embeddings: { identity: [1], style: [1], timbre: [1] } };

async function told(script, mayWait) {
  const { asked, model } = scripted(script);
  const said = [];
  for await (const piece of say(model, sentence, voice, [1], () => mayWait)) said.push(piece);
  return {
    asked,
    pieces: said.map(({ samples, isLast }) => [samples.length, isLast]),
    warning: said.at(-1).warning,
    attempts: said.at(-1).attempts,
  };
}

const found = {
  good: await told([["loud", 24]], true),
  streamed: await told([["loud", 24]], false),
  silentFirst: await told([["silent", 24], ["loud", 24]], true),
  never: await told([["silent", 24]], true),
  endless: await told([["loud", 1000]], true),
  endlessStreamed: await told([["loud", 1000]], false),
};

const { model } = scripted([["loud", 24]]);
const two = [{ ...sentence, lead: 0.5 }, { ...sentence, voice: "other", mark: ",", pause: 1 }];
const chunks = [];
let now = 0;
for await (const chunk of speak(model, two, voice, { other: voice }, 3, () => (now += 0.01))) chunks.push(chunk);
found.speech = {
  seconds: chunks.reduce((sum, { samples }) => sum + samples.length, 0) / RATE,
  silences: chunks.filter(({ samples }) => samples.length && samples.every((value) => value === 0)).map(({ samples }) => samples.length / RATE),
  sentences: [...new Set(chunks.map((chunk) => chunk.sentence))],
};
const { sentenceOf, Told } = await load("told.js");
found.unknown = [];
for (const name of ["nobody", "constructor", "Zoom of a bedroom, out of memory"]) {
  try {
    for await (const _ of speak(model, [{ ...sentence, voice: name }], voice, {}, 0, () => 0));
  } catch (error) {
    found.unknown.push(sentenceOf(error));
  }
}
found.errors = [
  new Error("Can't create a session. ERROR_CODE: 6, ERROR_MESSAGE: std::bad_alloc"),
  new RangeError("WebAssembly.Memory.grow(): Unable to grow instance memory, out of memory"),
  new Error("CompileError: WebAssembly.Module(): invalid opcode\n  at line 1"),
  new Error("Traceback (most recent call last):\n  File \"reader.py\", line 1\nKeyError: 'rooms'\n"),
  new Told("“Out of memory” has no words."),
  "a string",
].map(sentenceOf);

// random numbers
const numbers = (...seeds) => Array.from({ length: 4000 }, generator(...seeds));
const [one, again, other] = [numbers(1, 2), numbers(1, 2), numbers(1, 3)];
found.random = {
  same: one.every((value, index) => value === again[index]),
  equal: one.filter((value, index) => value === other[index]).length,
  mean: one.reduce((sum, value) => sum + value, 0) / one.length,
  range: [Math.min(...one), Math.max(...one)],
  power: normal(generator(5), 4000).reduce((sum, value) => sum + value * value, 0) / 4000,
};

// resampling: a tone in the pass band stays, one above the new Nyquist frequency goes
const tone = (hertz) => Float32Array.from({ length: 4800 }, (_, n) => Math.sin((2 * Math.PI * hertz * n) / 24000));
const low = await resample(tone(1000), 24000, 16000);
const high = await resample(tone(11000), 24000, 16000);
found.resampled = {
  length: low.length,
  error: Math.max(...low.subarray(200, -200).map((value, n) => Math.abs(value - Math.sin((2 * Math.PI * 1000 * (n + 200)) / 16000)))),
  left: Math.max(...high.subarray(200, -200).map(Math.abs)),
};

console.log(JSON.stringify(found));
