// Elements, and the message at the lower edge. Texts are set as text, never as markup.

/** @type {(id: string) => any} */
export const byId = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// A round button with an icon; `label` is what it does.
export function iconButton(name, label, act, className = "") {
  const button = make("button", { type: "button", className: `icon ${className}`, onclick: act });
  setIcon(button, name, label);
  return button;
}

export function setIcon(button, name, label) {
  const [icon, use] = ["svg", "use"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  use.setAttribute("href", `#icon-${name}`);
  icon.append(use);
  button.replaceChildren(icon);
  button.title = label;
  button.setAttribute("aria-label", label);
}

export function clock(seconds) {
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
}

const MESSAGE_MS = 8000;
let timer = 0;
let undo = null;

// Show a sentence. It disappears by itself, unless it is an error. `undone` is what the button Undo does.
export function show(sentence, { isError = false, undone = null } = {}) {
  clearTimeout(timer);
  undo = undone;
  byId("status").textContent = sentence;
  byId("toast").classList.toggle("shown", Boolean(sentence)); // never hidden, so that screen readers say it
  byId("toast").classList.toggle("bad", isError);
  byId("undo").hidden = !undone;
  byId("dismiss").hidden = !sentence;
  if (sentence && !isError) timer = setTimeout(() => show(""), MESSAGE_MS);
}

// Run what a person asked for, and show what went wrong.
export async function attempt(act) {
  try {
    await act();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) byId("key-form").hidden = false;
    show(error.message, { isError: true });
  }
}

export function on(id, event, act) {
  byId(id).addEventListener(event, (happening) => {
    if (event === "submit" || event === "drop" || event === "dragover") happening.preventDefault();
    attempt(() => act(happening));
  });
}

// Call `take` with each file that is dropped on an element.
export function onDrop(id, take) {
  on(id, "dragover", () => byId(id).classList.add("drop"));
  on(id, "dragleave", () => byId(id).classList.remove("drop"));
  on(id, "drop", ({ dataTransfer }) => {
    byId(id).classList.remove("drop");
    return each([...dataTransfer.files], take);
  });
}

// A button that opens a hidden field for files.
export function onFile(button, field, take) {
  on(button, "click", () => byId(field).click());
  on(field, "change", async ({ target }) => {
    const chosen = [...target.files];
    target.value = "";
    await each(chosen, take);
  });
}

async function each(files, take) {
  for (const file of files) await take(file);
}

export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

on("undo", "click", () => {
  const act = undo;
  show("");
  return act?.();
});
on("dismiss", "click", () => show(""));
