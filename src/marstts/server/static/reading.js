// The open book, and the place that its reading has reached, kept in the browser over a reload.

const BOOK = "marstts-book";
const PLACE = "marstts-place";

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null; // blocked, or written by something else
  }
}

function write(name, value) {
  try {
    if (value) localStorage.setItem(name, JSON.stringify(value));
    else localStorage.removeItem(name);
  } catch {
    localStorage.removeItem(name); // too large: the page works without
  }
}

// `shown`: number of the part in the field.
export const keepBook = (book, shown) => write(BOOK, book && { ...book, shown });

// The kept book with the part that was shown; null where there is none.
export function keptBook() {
  const { title, parts, shown } = read(BOOK) ?? {};
  const isText = (part) => typeof part?.title === "string" && typeof part.text === "string";
  if (typeof title !== "string" || !Array.isArray(parts) || !parts.every(isText)) return null;
  return parts.length > 1 ? { title, parts, shown: parts[shown] ? shown : 0 } : null;
}

// Note that a book is read aloud from this character of this part on; `book` is null where it is read to its end.
export function keepPlace(book, part, from) {
  write(PLACE, book && { title: book.title, part, from });
  document.dispatchEvent(new Event("place"));
}

// Where the reading of a book goes on; null where it does not. Voices named in a part hold from its beginning on.
export function placeIn(book) {
  const place = read(PLACE);
  const text = place?.title === book?.title && book?.parts[place?.part]?.text;
  if (typeof text !== "string") return null;
  const isPlain = !/\[voice:|^\s*<(speak|\?xml)/i.test(text);
  return { part: place.part, from: isPlain && place.from > 0 && place.from < text.length ? place.from : 0 };
}
