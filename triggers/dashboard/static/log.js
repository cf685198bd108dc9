// A log that grows, with search. Its element stays, and so do a reader at its end, a selection and what was read before.

import { counted, h } from "./dom.js";

const MOST = 256 * 1024; // characters that are kept
const OVERLAP = 200; // characters by which the newest lines are found in those before
const MOST_HITS = 2000;

export class Log {
  constructor() {
    this.text = document.createTextNode("");
    this.box = h("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "log" }, this.text);
    this.search = h("input", { type: "search", placeholder: "Find", "aria-label": "find in the log", input: () => this.find(), keydown: (event) => this.step(event) });
    this.note = h("p", { class: "dim note", role: "status" });
    this.hits = [];
    this.here = 0;
  }

  // Takes the newest lines: what is new of them is added at the end.
  show(lines) {
    const before = this.text.data;
    const added = addedBy(before, lines);
    if (added === "") return;
    const atEnd = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 8;
    if (added === null || before.length + added.length > MOST) this.text.data = lines;
    else this.text.appendData(added);
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
    if (this.search.value) this.find({ stay: true });
  }

  find({ stay = false } = {}) {
    const words = this.search.value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const found = words === "" ? [] : [...this.text.data.matchAll(new RegExp(words, "gi"))].slice(0, MOST_HITS);
    this.hits = found.map(({ index, 0: { length } }) => {
      const range = new Range();
      range.setStart(this.text, index);
      range.setEnd(this.text, index + length);
      return range;
    });
    if (!stay) this.here = 0;
    this.mark(!stay);
  }

  // Enter goes to the next hit, with Shift to the one before.
  step(event) {
    if (event.key !== "Enter" || this.hits.length === 0) return;
    event.preventDefault();
    this.here = (this.here + (event.shiftKey ? -1 : 1) + this.hits.length) % this.hits.length;
    this.mark(true);
  }

  mark(scrolls) {
    const { hits, here } = this;
    globalThis.CSS.highlights?.set("hits", new Highlight(...hits));
    globalThis.CSS.highlights?.set("hit", new Highlight(...hits.slice(here, here + 1)));
    this.note.textContent = this.search.value === "" ? "" : hits.length === 0 ? "not found" : `${here + 1} of ${counted(hits.length, "hit")}`;
    if (scrolls && hits.length > 0) this.box.scrollTop += hits[here].getBoundingClientRect().top - this.box.getBoundingClientRect().top - this.box.clientHeight / 2;
  }

  end() {
    for (const name of ["hits", "hit"]) globalThis.CSS.highlights?.delete(name);
  }
}

// What the newest lines add to those before; null: nothing of them was there.
function addedBy(before, lines) {
  if (lines.startsWith(before)) return lines.slice(before.length);
  const head = lines.slice(0, OVERLAP);
  for (let at = before.lastIndexOf(head); at >= 0; at = at === 0 ? -1 : before.lastIndexOf(head, at - 1)) {
    if (lines.startsWith(before.slice(at))) return lines.slice(before.length - at);
  }
  return null;
}
