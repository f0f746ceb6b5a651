// The listener's side of a listening test. It has a personal link and a position, and no system's name or trial's kind.
"use strict";

const QUESTIONS = {
  naturalness: {
    heading: "How natural does this sound?",
    title: "How natural do these voices sound?",
    text: ["You will hear recordings of speech. Rate how natural each one sounds, as if a person were speaking: " +
           "its sound, its rhythm, its intonation. The words themselves do not matter."],
  },
  similarity: {
    heading: "Is this the same person?",
    title: "Do these voices belong to the same person?",
    text: ["You will hear recordings in pairs. For each pair, choose whether the same person may be speaking in both, and how " +
           "sure you are.", "Only the voice matters: not the words, not how good the recording is."],
  },
  preference: {
    heading: "Which one is better?",
    title: "Which one is better?",
    text: ["You will hear each sentence twice. Choose which is better, or that there is no difference."],
  },
};
const SOUNDS = { stimulus: "Play recording", reference: "Play reference", first: "Play first", second: "Play second" };
const STORED = "marstts-listening-link";

const find = (selector, root = document) => root.querySelector(selector);
let link = null;
let test = null;
let keys = null; // actions of Space, digits and Enter in the present view
const fetched = new Map(); // address -> promise of a blob address

async function request(address, message) {
  const options = message === undefined ? {} :
    { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(message) };
  const reply = await fetch(address, options);
  const body = await reply.json();
  if (!reply.ok) throw Object.assign(new Error(body.error), { status: reply.status });
  return body;
}

function sound(address) { // whole, as a blob: plays at once, and again without the network
  if (!fetched.has(address)) {
    const promise = fetch(address).then((reply) => {
      if (!reply.ok) throw new Error("A recording could not be loaded. Please reload the page.");
      return reply.blob();
    }).then((blob) => URL.createObjectURL(blob));
    promise.catch(() => fetched.delete(address));
    fetched.set(address, promise);
  }
  return fetched.get(address);
}

function forget(keep) { // recordings that will not be played again
  for (const [address, promise] of fetched) {
    if (keep.includes(address)) continue;
    fetched.delete(address);
    promise.then((blob) => URL.revokeObjectURL(blob), () => {});
  }
}

function showStatus(text) { find("#status").textContent = text; }

async function attempt(act) { // shows an error and leaves the page as it is
  try { showStatus(""); await act(); } catch (error) {
    showStatus(error instanceof TypeError ? "The server cannot be reached. Please check your connection and try again." : error.message);
  }
}

let shown = []; // audio elements of the present view

function show(name) { // a fresh copy of a template, its heading focused so that it is read aloud
  for (const audio of shown) audio.pause();
  shown = [];
  keys = null;
  const view = find("#view");
  view.replaceChildren(find("#" + name).content.cloneNode(true));
  view.dataset.view = name;
  window.scrollTo(0, 0);
  find("h1", view).focus({ preventScroll: true });
  return view;
}

function addPlayers(view, sounds, onAllPlayed, onStart = () => {}) {
  // sounds: [{name, address}]; onAllPlayed is called once all were played to their end. Returns the action of Space.
  const players = sounds.map(({ name, address }) => {
    const node = find("#player").content.cloneNode(true).firstElementChild;
    const button = find("button", node), bar = find(".bar i", node), audio = new Audio();
    const player = { audio, button, played: false };
    find(".name", node).textContent = name;
    button.disabled = true;
    const load = () => attempt(async () => { audio.src = await sound(address); button.disabled = false; });
    load();
    button.addEventListener("click", () => {
      for (const other of shown) if (other !== audio) other.pause();
      if (!audio.paused) { audio.pause(); return; }
      audio.currentTime = 0;
      attempt(async () => { await audio.play(); onStart(); });
    });
    audio.addEventListener("play", () => node.classList.add("playing"));
    audio.addEventListener("pause", () => node.classList.remove("playing"));
    audio.addEventListener("timeupdate", () => { bar.style.width = 100 * audio.currentTime / audio.duration + "%"; });
    audio.addEventListener("error", () => showStatus("A recording cannot be played by this browser."));
    audio.addEventListener("ended", () => {
      player.played = true;
      node.classList.remove("playing");
      node.classList.add("played");
      if (players.every((one) => one.played)) onAllPlayed();
    });
    shown.push(audio);
    find(".players", view).append(node);
    return player;
  });
  let last = -1;
  return () => { // the first that was not played yet; once all were, one after the other
    const unplayed = players.findIndex((one) => !one.played);
    last = unplayed >= 0 ? unplayed : (last + 1) % players.length;
    players[last].button.click();
  };
}

function addChoices(view, choices, onChosen) {
  const field = find("fieldset", view);
  for (const { digit, label } of choices) {
    const node = find("#choice").content.cloneNode(true).firstElementChild;
    find("input", node).value = digit;
    find("kbd", node).textContent = digit;
    find("span", node).textContent = label;
    field.append(node);
  }
  field.addEventListener("change", () => onChosen(Number(find(":checked", field).value)));
  return (digit) => {
    const input = find(`input[value="${digit}"]`, field);
    if (!input || field.disabled) return;
    input.focus({ preventScroll: true });
    input.click();
  };
}

function showProgress(done, total) {
  const bar = find("#progress");
  bar.hidden = total === 0;
  bar.setAttribute("aria-valuemax", total);
  bar.setAttribute("aria-valuenow", done);
  find("i", bar).style.width = 100 * done / Math.max(1, total) + "%";
}

function showWelcome() {
  const view = show("welcome");
  find(".lead", view).textContent =
    `You will hear ${test.recordings} short recordings and rate them. It takes about ${test.minutes} ` +
    `minute${test.minutes > 1 ? "s" : ""}.`;
  const needs = ["Please sit somewhere quiet."];
  if (test.headphones) needs.push("Please wear headphones; a short check follows.");
  if (test.questions[0] === "preference") needs.length = 0;
  find(".needs", view).replaceChildren(...needs.map((text) => {
    const item = document.createElement("li"); item.textContent = text; return item;
  }));
  find(".contact", view).textContent = test.contact ? `Questions: ${test.contact}` : "";
  const begin = () => attempt(async () => {
    link = (await request("/api/listeners", {})).link;
    keepLink();
    const state = await request(`/api/l/${link}`);
    state.volume ? showVolume(state) : proceed(state);
  });
  find(".main", view).addEventListener("click", begin, { once: true });
  keys = { enter: () => find(".main", view).click() };
}

function keepLink() {
  history.replaceState(null, "", `/l/${link}`);
  try { localStorage.setItem(STORED, link); } catch { /* private windows may not store */ }
  find("#link").value = location.href;
  find("#footer").hidden = false;
}

function showVolume(state) {
  const view = show("volume");
  const next = find(".main", view);
  const play = addPlayers(view, [{ name: "Play speech", address: "/api/volume.wav" }], () => {}, () => { next.disabled = false; });
  next.addEventListener("click", () => attempt(async () => proceed(await request(`/api/l/${link}`))));
  keys = { space: play, enter: () => next.click() };
}

function showHeadphones(state, answers = []) {
  const view = show("headphones"), next = find(".main", view), index = answers.length;
  find(".step", view).textContent = `Headphones, ${index + 1} of ${state.tones}`;
  find(".note", view).hidden = state.attempt === 0 || index > 0;
  const address = (place) => `/api/l/${link}/tones/${place}.wav?attempt=${state.attempt}`;
  if (index === 0) forget([address(0)]);
  const play = addPlayers(view, [{ name: "Play three tones", address: address(index) }], () => {},
    () => { find("fieldset", view).disabled = false; });
  if (index + 1 < state.tones) sound(address(index + 1)).catch(() => {});
  let chosen = null;
  const choices = ["First", "Second", "Third"].map((label, place) => ({ digit: place + 1, label }));
  const choose = addChoices(view, choices, (digit) => { chosen = digit - 1; next.disabled = false; });
  next.addEventListener("click", () => attempt(async () => {
    const all = [...answers, chosen];
    if (all.length < state.tones) showHeadphones(state, all);
    else proceed(await request(`/api/l/${link}/headphones`, { answers: all }));
  }));
  keys = { space: play, digit: choose, enter: () => next.click() };
}

function showPart(state) {
  const question = QUESTIONS[state.trial.question], view = show("part");
  find("h1", view).textContent = question.title;
  const text = [...question.text];
  if (state.headphones_passed === false) {
    text.unshift("The check could not confirm that you wear headphones. You can continue; your answers may be excluded.");
  }
  if (state.trial.example) text.push("The first few are examples that show how far the scale reaches. They do not count.");
  find(".text", view).replaceChildren(...text.map((words) => {
    const node = document.createElement("p"); node.textContent = words; return node;
  }));
  find(".main", view).addEventListener("click", () => showTrial(state));
  keys = { enter: () => find(".main", view).click() };
}

function trialSounds(position, sounds) {
  return sounds.map((role) => ({ name: SOUNDS[role], address: `/api/l/${link}/${position}/${role}.wav` }));
}

function showTrial(state) {
  const { trial, position } = state, question = QUESTIONS[trial.question];
  const view = show("trial"), next = find(".main", view);
  const place = trial.example ? "An example: it does not count" : `Recording ${trial.number} of ${trial.of}`;
  find(".step", view).textContent = trial.ends_examples ? `${place}. The test begins.` : place;
  find("h1", view).textContent = question.heading;
  find("legend", view).textContent = question.heading;
  find(".last", view).textContent = trial.choices.length;
  const sounds = trialSounds(position, trial.sounds);
  const upcoming = state.next ? trialSounds(position + 1, state.next) : [];
  forget([...sounds, ...upcoming].map((one) => one.address));
  let plays = 0, chosen = null;
  const play = addPlayers(view, sounds, () => { find("fieldset", view).disabled = false; }, () => { plays += 1; });
  Promise.allSettled(sounds.map((one) => sound(one.address)))
    .then(() => upcoming.forEach((one) => sound(one.address).catch(() => {})));
  const shownChoices = trial.question === "preference" ? trial.choices : [...trial.choices].reverse();
  const choose = addChoices(view, shownChoices, (digit) => { chosen = digit; next.disabled = false; });
  let sending = false;
  next.addEventListener("click", () => {
    if (sending) return;
    sending = true;
    attempt(async () => proceed(await request(`/api/l/${link}/answers`, { position, choice: chosen, plays })))
      .finally(() => { sending = false; });
  });
  keys = { space: play, digit: choose, enter: () => next.click() };
}

function showDone(state) {
  const view = show("done");
  find("#footer").hidden = true;
  const result = state.result;
  find(".text", view).textContent = result ? result.sentence : "All your answers are stored. If you were asked for a code, it is:";
  find(".code", view).textContent = result ? "" : state.code;
  find(".code", view).hidden = Boolean(result);
  try { localStorage.removeItem(STORED); } catch { /* nothing was stored */ }
}

function proceed(state) {
  showProgress(state.stage === "headphones" ? 0 : state.position, state.stage === "headphones" ? 0 : state.total);
  if (state.stage === "headphones") showHeadphones(state);
  else if (state.stage === "done") showDone(state);
  else if (state.trial.opens_part) showPart(state);
  else showTrial(state);
}

document.addEventListener("keydown", (event) => {
  if (!keys || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = event.target.tagName === "BUTTON" || event.target.id === "link";
  let act = null;
  if (event.key === " " && !onButton) act = keys.space;
  else if (event.key === "Enter" && !onButton) act = keys.enter;
  else if (/^[1-9]$/.test(event.key) && keys.digit) act = () => keys.digit(event.key);
  if (!act) return;
  event.preventDefault();
  act();
});

find("#copy").addEventListener("click", async () => {
  find("#link").select();
  try { await navigator.clipboard.writeText(find("#link").value); showStatus("Copied."); } catch { document.execCommand("copy"); }
});

async function start() {
  test = await request("/api/test");
  document.title = find("#title").textContent = test.title;
  const named = location.pathname.match(/^\/l\/([\w-]+)$/);
  try { link = named ? named[1] : localStorage.getItem(STORED); } catch { link = null; }
  if (!link) { showWelcome(); return; }
  try {
    const state = await request(`/api/l/${link}`);
    keepLink();
    const fresh = state.stage === "headphones" || state.position === 0;
    fresh && state.volume ? showVolume(state) : proceed(state);
  } catch (error) {
    if (named || error.status !== 404) throw error;
    localStorage.removeItem(STORED); // a link of another test that was served at this address
    showWelcome();
  }
}

attempt(start);
