// Keeps every file of the site, so that a second visit downloads nothing and works offline. The build fills in the
// names of the caches, each of which changes only with its files.

const CACHES = /* CACHES */ {};
const HEADERS = /* HEADERS */ {};
const PAGE = Object.keys(CACHES).find((name) => name.startsWith("marstts-page-"));

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(PAGE).then((cache) => cache.addAll(CACHES[PAGE].map((path) => new Request(path || "./", { cache: "reload" })))));
});

addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith("marstts-") && !(name in CACHES);
  const leave = async () => {
    await Promise.all((await caches.keys()).filter(isOld).map((name) => caches.delete(name)));
    await clients.claim();
  };
  event.waitUntil(leave());
});

addEventListener("fetch", (event) => {
  const base = new URL("./", location.href).href;
  const [address] = event.request.url.split(/[?#]/);
  const path = address.startsWith(base) ? address.slice(base.length) : null;
  const name = Object.keys(CACHES).find((each) => CACHES[each].includes(path));
  if (event.request.method === "GET" && name) event.respondWith(kept(name, address));
});

// A file out of its cache, or of the host, and then kept.
async function kept(name, address) {
  const cache = await caches.open(name);
  let response = await cache.match(address);
  if (!response) {
    response = await fetch(address);
    if (response.ok) await cache.put(address, response.clone());
  }
  const headers = new Headers(response.headers);
  for (const [key, value] of Object.entries(HEADERS)) headers.set(key, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
