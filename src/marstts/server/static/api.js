// Requests to the server. Errors carry the server's sentence.

let key = "";

export function setKey(value) {
  key = value.trim();
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.message ?? `The server answered ${response.status}.`);
}

export async function listVoices() {
  return (await (await request("/v1/audio/voices")).json()).voices;
}

export async function speak(input, voice, seed, signal) {
  const fields = {
    model: "tts-1", input, voice, seed, response_format: "pcm", stream_format: "sse", sentences: true, words: true,
  };
  const headers = { "Content-Type": "application/json" };
  return request("/v1/audio/speech", { method: "POST", headers, body: JSON.stringify(fields), signal });
}

// The data of the server-sent events of a response, one after another.
export async function* events(response) {
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

export async function createVoice(name, recording, transcript, consent) {
  const form = new FormData();
  form.append("name", name);
  form.append("audio_sample", recording, "recording");
  form.append("transcript", transcript);
  form.append("consent", consent);
  return (await request("/v1/audio/voices", { method: "POST", body: form })).json();
}

export async function deleteVoice(id) {
  return request(`/v1/audio/voices/${encodeURIComponent(id)}`, { method: "DELETE" });
}
