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
  const body = JSON.stringify({ model: "tts-1", input, voice, seed, response_format: "pcm" });
  const headers = { "Content-Type": "application/json" };
  return request("/v1/audio/speech", { method: "POST", headers, body, signal });
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
