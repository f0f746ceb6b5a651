// Runs the tab's modules on recorded inputs, and prints what they compute next to what was recorded: one JSON object.
// Usage: node check.mjs STATIC RUNTIME FOLDER

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [staticFolder, runtimeFolder, folder] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.join(staticFolder, name)).href);
const ort = await import(pathToFileURL(path.join(runtimeFolder, "ort.wasm.min.mjs")).href);
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = pathToFileURL(runtimeFolder + path.sep).href;
const json = (name) => JSON.parse(fs.readFileSync(path.join(folder, name), "utf-8"));
const open = (name) => ort.InferenceSession.create(new Uint8Array(fs.readFileSync(path.join(folder, `${name}.onnx`))));
const far = (left, right) => Math.max(...Array.from(left, (value, index) => Math.abs(value - right[index])), left.length - right.length);
const site = json("site.json");
const recorded = json("recorded.json");
const found = {};

const { Engine } = await load("engine.js");
const { Tensors } = await load("tensors.js");
const graphs = {};
for (const name of ["encoder", "global", "patch", "local", "decoder", "filters", "pitch"]) graphs[name] = await open(name);

// engine: logits of every position, attention, tokens
const engine = new Engine(ort, graphs, site.model);
const tensors = new Tensors(ort);
const { steps, ...prompt } = recorded.steps;
let state = await engine.start(prompt);
found.logits = found.attention = 0;
found.tokens = [];
found.codeTokens = steps.map(({ tokens }) => tokens);
for (const step of steps) {
  let past = [];
  for (const [position, logits] of step.logits.entries()) {
    const feeds = {
      position: tensors.integers([position], []),
      vectors: tensors.floats(state.vectors, [1, state.vectors.length]),
      tokens: tensors.integers([position ? step.tokens[position - 1] : 0], [1]),
    };
    const names = graphs.local.outputNames.slice(1);
    const { heads, width } = { heads: site.model.localHeads, width: site.model.width / site.model.localHeads };
    names.forEach((_, index) => (feeds[`past.${index}`] = past[index] ?? tensors.floats([], [1, heads, 0, width])));
    const outputs = await graphs.local.run(feeds);
    past = names.map((name) => outputs[name]);
    found.logits = Math.max(found.logits, far(outputs.logits.data, logits));
  }
  found.attention = Math.max(found.attention, far(state.attention, step.attention));
  found.tokens.push(await engine.samplePatch(state, { ...step, maxRatio: site.sampling.rasMaxRatio }));
  if (step.tokens.includes(engine.endOfSpeech)) break;
  state = await engine.append(state, step.tokens);
}

// the loop: the same tokens from the same numbers
const { generate } = await load("generate.js");
const numbers = steps.flatMap(({ uniforms }) => uniforms);
const drawn = [];
const limits = { min: 5, max: 8 };
for await (const row of generate(engine, { prompt, topP: 0.2, limits, sampling: site.sampling, uniform: () => numbers.shift() })) {
  drawn.push([row.patches.length, row.attention.length, row.stop]);
}
found.loop = drawn;

// the warm-up: a whole take before it and after it
const { Take } = await load("take.js");
const { warmUp } = await load("warm-up.js");
const { Codec } = await load("codec.js");
const { generator } = await load("random.js");
const model = { engine, codec: new Codec(ort, graphs, site.codec), backoff: site.backoff, sampling: site.sampling, breathe: async () => {} };
const ran = { decoder: 0, filters: 0, pitch: 0, encoder: 0, global: 0, patch: 0 };
async function wholeTake() {
  const codes = [];
  const listening = Object.create(engine, { codes: { value: (tokens) => (codes.push(tokens.join(" ")), engine.codes(tokens)) } });
  const options = { topP: 0.6, uniform: generator(1, 2), mayGiveUp: false, minPatches: 0 };
  const take = new Take({ ...model, engine: listening }, { sentence: site.warmUp, voice: site.voices[0], ...options });
  for await (const _ of take.make());
  return { codes, samples: take.samples };
}
const before = await wholeTake();
for (const name of Object.keys(ran)) {
  const { run } = graphs[name];
  graphs[name].run = (feeds) => ((ran[name] += 1), run.call(graphs[name], feeds));
}
await warmUp(model, site.warmUp, site.voices[0]);
found.warmUp = { ran: { ...ran } };
const after = await wholeTake();
found.warmUp.patches = before.codes.length;
found.warmUp.isSame = before.codes.join() === after.codes.join();
found.warmUp.samples = far(before.samples, after.samples);

// style offset
found.style = far((await load("style.js")).withOffset(recorded.steps.plainStyle, site.model.styleOffset), recorded.steps.style);

// codec: whole and in pieces
const audio = recorded.audio;
const codec = new Codec(ort, graphs, site.codec, (patch) => Float32Array.from(audio.noise[patch]));
const whole = await codec.decoding(recorded.steps.timbre).decodeUntil(audio.codes, audio.codes.length);
found.audio = far(whole, audio.samples);
const pieces = [];
const decoding = codec.decoding(recorded.steps.timbre);
for (let stop = 2, size = 4; pieces.at(-1)?.stop !== audio.codes.length; stop = Math.min(stop + size, audio.codes.length), size *= 2) {
  const known = audio.codes.slice(0, stop + site.codec.lookaheadPatches);
  pieces.push({ stop, samples: await decoding.decodeUntil(known, stop) });
}
const { joined, Trimmer, audibleSpan } = await load("edges.js");
found.pieces = far(joined(pieces.map(({ samples }) => samples)), audio.samples);
const own = new Codec(ort, graphs, site.codec);
const noise = own.noise(3, 4096);
found.noise = [noise.reduce((sum, value) => sum + value, 0) / 4096, noise.reduce((sum, value) => sum + value * value, 0) / 4096];

// edges, loudness, limiter
const samples = Float32Array.from(audio.samples);
const inPieces = (worker) => {
  const parts = [];
  for (let at = 0; at < samples.length; at += 3000) parts.push(worker.push(samples.slice(at, at + 3000)));
  return joined([...parts, worker.finish()]);
};
found.trimmed = far(inPieces(new Trimmer(site.codec.sampleRate)), audio.trimmed);
found.loudness = (await load("loudness.js")).loudness(samples, site.codec.sampleRate) - audio.loudness;
found.span = far(audibleSpan(samples), audio.span);
const { Limiter } = await load("limiter.js");
const limiter = new Limiter(site.codec.sampleRate);
const loud = samples.map((value) => value * 9);
found.limited = far(joined([limiter.push(loud.slice(0, 7000)), limiter.push(loud.slice(7000)), limiter.finish()]), audio.limited);

// words
const words = recorded.words;
const { SentencePlaces } = await load("places.js");
const { searchPath } = await load("path.js");
const { audibleFrames } = await load("audible.js");
const { findFlaws } = await load("flaws.js");
const { timedSpans, wordsOf } = await load("words.js");
const places = new SentencePlaces(recorded.steps.sentence, recorded.steps.spans);
const attention = steps.map((step) => Float32Array.from(step.attention));
const audible = audibleFrames(samples, site.codec.patchSamples);
const route = searchPath(places, attention, audible);
const spans = timedSpans(route);
found.audible = far(audible, words.audible);
found.cut = places.places.map(({ kind, start, end, letters }) => [kind, start, end, letters]);
found.path = route.steps;
found.latest = searchPath(places, attention, null).latest;
found.spans = spans.map(({ first, last, start, end, confidence }) => [first, last, start, end, confidence]);
found.flaws = findFlaws(route, steps.map(({ tokens }) => tokens), true).map(({ kind, word }) => [kind, word]);
const seconds = samples.length / site.codec.sampleRate;
found.words = wordsOf(places.characters, [], spans, 1 / site.codec.patchRate, [0.1, seconds]).map(
  ({ written, start, end, confidence }) => [written, start, end, confidence],
);

// backoff
const backoff = await load("backoff.js");
found.schedule = backoff.topPSchedule(site.backoff, 0.2);
found.limits = recorded.backoff.limits.map(([length]) => {
  const { min, max } = backoff.limits(site.backoff, length, 11.71875);
  return [length, min, max];
});

// cloning
const { Cloner } = await load("cloning.js");
const encoders = {};
for (const name of ["identity", "style", "speaker", "timbre"]) encoders[name] = await open(name);
const sounds = recorded.sounds;
const resample = async () => Float32Array.from(sounds.atSpeakerRate);
const cloner = new Cloner(ort, encoders, site.encoders, site.codec, site.cloning, resample);
found.prepared = far(cloner.prepare(Float32Array.from(sounds.recording)), sounds.prepared);
const embeddings = await cloner.clone(Float32Array.from(sounds.recording));
found.embeddings = Object.fromEntries(Object.entries(embeddings).map(([role, values]) => [role, far(values, sounds.embeddings[role])]));
const refused = (recording) => {
  try {
    cloner.prepare(Float32Array.from(recording));
    return "";
  } catch (error) {
    return error.message;
  }
};
found.refused = [refused(new Array(48000).fill(0)), refused(sounds.recording.slice(12000, 24000))];

console.log(JSON.stringify(found));
