// The sentences that are read, and in them the word that plays.

const INTERVAL_MS = 30;

export class Reading {
  constructor(place, player) {
    this.place = place;
    this.player = player;
    this.marks = []; // nodes and the second of the speech from which they are marked
    this.timer = setInterval(() => this.mark(), INTERVAL_MS);
    place.replaceChildren();
  }

  // A sentence begins with the audio that is pushed next.
  addSentence(text) {
    const node = document.createElement("span");
    this.rest = document.createTextNode(`${text} `);
    node.append(this.rest);
    this.place.append(node);
    this.marks.push({ node, from: this.player.length, class: "playing" });
  }

  // Words of the last sentence, with times.
  addWords(words) {
    for (const { spoken, start_time: from, end_time: until } of words) {
      const at = this.rest?.data.indexOf(spoken) ?? -1;
      if (at < 0) continue;
      const word = this.rest.splitText(at);
      this.rest = word.splitText(spoken.length);
      const node = document.createElement("span");
      word.replaceWith(node);
      node.append(word);
      this.marks.push({ node, from, until, class: "word" });
    }
  }

  mark() {
    const now = this.player.position();
    for (const kind of ["playing", "word"]) {
      const current = this.marks.findLast((mark) => mark.class === kind && mark.from <= now);
      for (const mark of this.marks) if (mark.class === kind) mark.node.classList.toggle(kind, mark === current);
    }
  }

  // Leave the last marks as they are.
  stop() {
    clearInterval(this.timer);
  }
}
