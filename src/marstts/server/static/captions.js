// Subtitles (SubRip) of timed words: a few words at a time, and a line ends with a sentence.

const MAX_CHARACTERS = 42; // as broadcasters recommend
const MAX_SECONDS = 5;
const SENTENCE_GAP_SECONDS = 0.15; // a stop without a pause after it is an abbreviation's

export function srt(words) {
  return cues(words)
    .map((cue, i) => `${i + 1}\n${time(cue[0].start)} --> ${time(cue.at(-1).end)}\n${line(cue)}\n`)
    .join("\n");
}

function cues(words) {
  const groups = [];
  for (const word of words) {
    const last = groups.at(-1);
    const hasStop = last && /[.!?]["'”’)\]]*$/.test(line(last));
    const ends = hasStop && word.start - last.at(-1).end >= SENTENCE_GAP_SECONDS;
    const isFull = last && line([...last, word]).length > MAX_CHARACTERS;
    if (!last || ends || isFull || word.end - last[0].start > MAX_SECONDS) groups.push([word]);
    else last.push(word);
  }
  return groups;
}

const line = (words) => words.map((word) => word.written).join(" ");

function time(seconds) {
  return new Date(Math.round(seconds * 1000)).toISOString().slice(11, 23).replace(".", ",");
}
