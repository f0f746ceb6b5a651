// Requests to the server. Errors carry one sentence.

const SERVER = new URL("../", import.meta.url).href; // ends with "/"; a proxy may serve it below a path
const MAX_ATTEMPTS = 8; // of what a busy server refuses
const WAIT_SECONDS = 5;

let key = "";

export function setKey(value) {
  key = value.trim();
}

export class ApiError extends Error {
  constructor(status, message, retryAfter = WAIT_SECONDS) {
    super(message);
    Object.assign(this, { status, retryAfter });
  }
}

const SENTENCES = {
  401: "This server asks for an API key: type it at the top of the page.",
  413: "This file is too large for the server.",
  429: "The server is busy.",
  507: "The server cannot keep this: its disk is full.",
};

async function request(path, options = {}) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(SERVER + path, { ...options, headers }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached. Is it still running?");
  });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const wait = Number(response.headers.get("Retry-After")) || undefined;
  throw new ApiError(response.status, sentenceOf(response, body?.error?.message), wait);
}

// Do something again while the server is busy or cannot be reached.
export async function patiently(act, signal) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await act();
    } catch (error) {
      if (![0, 429, 503].includes(error.status) || attempt === MAX_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.retryAfter));
      signal?.throwIfAborted();
    }
  }
}

function sentenceOf(response, message) {
  if (response.status === 401) return key ? "The server does not know this API key." : SENTENCES[401];
  const found = message ?? SENTENCES[response.status] ?? `The server answered with status ${response.status}.`;
  const sentence = found.replace(/^[a-z_]+: (.)/, (_, letter) => letter.toUpperCase()); // without the field's name
  const wait = response.headers.get("Retry-After");
  return wait ? `${sentence} Try again in ${wait} s.` : sentence;
}

function post(path, fields, signal) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(fields), signal });
}

function upload(path, fields) {
  const body = new FormData();
  for (const [name, values] of Object.entries(fields)) for (const value of [values].flat()) body.append(name, value);
  return request(path, { method: "POST", body });
}

export async function listVoices() {
  return (await (await request("v1/audio/voices")).json()).voices;
}

// `settings`: fields of a request that are not the usual ones.
function speechFields({ text, voice, seed, speed, settings = {} }) {
  return { model: "tts-1", input: text, voice, seed, speed, ...settings };
}

// The events of a speech while it is generated: raw PCM, words and sentences. `sentence`: the number of the only one.
export async function speak(speech, signal, sentence = null) {
  const extra = { response_format: "pcm", stream_format: "sse", words: true, sentences: true, sentence };
  return events(await post("v1/audio/speech", { ...speechFields(speech), ...extra }, signal));
}

// Samples as MP3 frames, which can be appended to others.
export async function mp3(samples) {
  return (await upload("v1/audio/mp3", { samples: new Blob([samples]) })).blob();
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const line = block.split("\n").find((part) => part.startsWith("data: "));
      if (line) yield JSON.parse(line.slice(6));
    }
  }
}

export async function readings(input, signal) {
  return (await post("v1/text/readings", { input }, signal)).json();
}

export async function readParts(file, name = file.name) {
  return (await upload("v1/text/parts", { file, name })).json();
}

export async function transcriptFits(recording, transcript) {
  return (await (await upload("v1/audio/transcript_check", { audio_sample: recording, transcript })).json()).fits;
}

// `recordings` are of one speaker; the transcript is that of the first.
export async function createVoice(name, recordings, transcript, consent) {
  return (await upload("v1/audio/voices", { name, audio_sample: recordings, transcript, consent })).json();
}

// `shares`: voices by name or id, each with a number.
export async function mixVoices(name, shares) {
  return (await post("v1/audio/voices/mix", { name, voices: shares })).json();
}

export async function renameVoice(id, name) {
  return (await post(`v1/audio/voices/${encodeURIComponent(id)}`, { name })).json();
}

// `keepalive`: the request is sent even while the page is closed.
export function deleteVoice(id) {
  return request(`v1/audio/voices/${encodeURIComponent(id)}`, { method: "DELETE", keepalive: true });
}

const asPython = (value) => JSON.stringify(value).replaceAll(/:true(?=[,}])/g, ":True").replaceAll('":', '": ');

// The requests of other programs that give the same speech.
export function asCode(speech) {
  const fields = { ...speechFields(speech), response_format: "mp3" };
  const quoted = JSON.stringify(fields).replaceAll("'", "'\\''");
  return {
    curl:
      `curl ${SERVER}v1/audio/speech -H 'Content-Type: application/json' \\\n  -d '${quoted}' -o speech.mp3`,
    python:
      `import openai\n\nclient = openai.OpenAI(base_url="${SERVER}v1", api_key="none")\n` +
      `speech = client.audio.speech.create(\n    model="tts-1", voice=${JSON.stringify(speech.voice)},\n` +
      `    input=${JSON.stringify(speech.text)},\n` +
      `    speed=${speech.speed}, response_format="mp3",\n` +
      `    extra_body=${asPython({ seed: speech.seed, ...speech.settings })},\n)\n` +
      `speech.write_to_file("speech.mp3")`,
  };
}
