// Keeps every file of the site, so that a second visit downloads nothing and works offline. The build fills in the
// names of the caches, each of which changes only with its files. They end in the site's path: another site of the same
// host has caches of its own.

const CACHES = /* CACHES */ {};
const HEADERS = /* HEADERS */ {};
const BASE = new URL("./", location.href);
const END = ` of ${BASE.pathname}`;
const PAGE = Object.keys(CACHES).find((name) => name.startsWith("marstts-page-"));
const open = (name) => caches.open(name + END);

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(open(PAGE).then((cache) => cache.addAll(CACHES[PAGE].map((path) => new Request(path || "./", { cache: "reload" })))));
});

addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith("marstts-") && name.endsWith(END) && !(name.slice(0, -END.length) in CACHES);
  const leave = async () => {
    await Promise.all((await caches.keys()).filter(isOld).map((name) => caches.delete(name)));
    await clients.claim();
  };
  event.waitUntil(leave());
});

addEventListener("fetch", (event) => {
  const [address] = event.request.url.split(/[?#]/);
  const path = address.startsWith(BASE.href) ? address.slice(BASE.href.length) : null;
  const name = Object.keys(CACHES).find((each) => CACHES[each].includes(path));
  if (event.request.method === "GET" && name) event.respondWith(kept(event, name, address));
});

// A file out of its cache, or of the host, and kept while it comes: a browser that has no room for it still gets it.
async function kept(event, name, address) {
  const cache = await open(name).catch(() => null);
  let response = await cache?.match(address);
  if (!response) {
    response = await fetch(address);
    if (response.ok && cache) event.waitUntil(cache.put(address, response.clone()).catch(() => {}));
  }
  const headers = new Headers(response.headers);
  for (const [key, value] of Object.entries(HEADERS)) headers.set(key, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
