// @ts-check
// Downloads with progress, and where the files of a part are.

/**
 * A part of the site, as `site.json` lists it.
 * @typedef {{id: string, title: string, files: {path: string, bytes: number}[]}} Part
 */

/**
 * The address of a file of a part, by the end of its name.
 * @param {Part[]} parts @param {string} name
 */
export function addressOf(parts, name) {
  const file = parts.flatMap(({ files }) => files).find(({ path }) => path.endsWith(`/${name}`));
  if (!file) throw new Error(`This site lacks ${name}: it has to be built again.`);
  return new URL(file.path, import.meta.url).href;
}

/**
 * The bytes of a file; `onBytes` is called with the count of those that came since the last call.
 * @param {string} address @param {(count: number) => void} onBytes
 */
export async function download(address, onBytes) {
  const response = counted(await fetched(address), onBytes);
  return new Uint8Array(await response.arrayBuffer());
}

/** @param {string | URL | Request} address @returns {Promise<Response>} */
async function fetched(address) {
  const response = await fetch(address).catch(() => null);
  if (!response?.ok) throw new Error("A part of the page could not be loaded: check the connection and reload the page.");
  return response;
}

/**
 * The response, whose bytes are counted as they come.
 * @param {Response} response @param {(count: number) => void} onBytes
 */
export function counted(response, onBytes) {
  if (!response.body) return response;
  const counter = new TransformStream({
    transform(chunk, controller) {
      onBytes(chunk.byteLength);
      controller.enqueue(chunk);
    },
  });
  const { status, statusText, headers } = response;
  return new Response(response.body.pipeThrough(counter), { status, statusText, headers });
}
