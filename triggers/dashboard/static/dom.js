// Makes elements and texts. A string is always text, never markup: nothing here, or anywhere else, parses HTML.

// What users of this lab type: `nightjar` or `./nightjar`.
export const PROGRAM = document.querySelector("meta[name=program]").content;

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Brings the children of `parent` to `items`, one element each: what has not changed stays, with its focus.
export function sync(parent, items, keyOf, make) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, nth) => {
    const key = String(keyOf(item));
    const state = JSON.stringify(item);
    let element = before.get(key);
    if (element?.dataset.state !== state) {
      const focused = element?.contains(document.activeElement) ? [...element.querySelectorAll("a, button")].indexOf(document.activeElement) : null;
      const made = make(item);
      made.dataset.key = key;
      made.dataset.state = state;
      element?.replaceWith(made);
      element = made;
      if (focused !== null) (made.matches("a, button") ? made : made.querySelectorAll("a, button")[Math.max(0, focused)])?.focus({ preventScroll: true });
    }
    before.delete(key);
    if (parent.children[nth] !== element) parent.insertBefore(element, parent.children[nth] ?? null);
  });
  for (const gone of before.values()) gone.remove();
}

// Makes the content of an element anew where what it shows has changed.
export function fill(element, state, make) {
  const text = JSON.stringify(state ?? null);
  if (element.dataset.state === text) return;
  element.dataset.state = text;
  element.replaceChildren(...make().flat().filter((child) => child !== null));
}

// A count with its noun: "1 run", "2 runs"; `many` is the plural of a noun that takes more than an s.
export function counted(count, what, many = `${what}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? what : many}`;
}

// The mark and the word of a run's state. `verdict` is one of the five that have a colour and a shape.
export function badge(word, verdict = "") {
  return h("span", { class: `badge ${verdict || word}` }, word);
}

// Digits after the point that the noise leaves meaningful: two of the noise's own.
export function digitsOf(sigma) {
  if (!sigma) return 6;
  return Math.max(0, Math.min(8, 1 - Math.floor(Math.log10(sigma))));
}

export function number(value, digits = 6) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  const isPower = size >= 1e6 || (size !== 0 && size < 1e-4 && digits >= 6); // fewer digits: it is within the noise
  const text = isPower ? value.toExponential(3) : value.toFixed(Math.max(0, Math.min(digits, 7 - String(Math.trunc(size)).length)));
  return text.replace(/^-/, "\u2212");
}

// A gain: above zero is better, whatever the metric's direction. Green is for keeps alone.
export function signed(gain, { digits = 6, isKept = false } = {}) {
  if (gain === null || gain === undefined) return h("span", {}, "");
  const text = `${gain > 0 ? "+" : ""}${number(gain, digits)}`;
  return h("span", { class: isKept && gain > 0 ? "gain better" : "gain" }, text);
}

const CLOCK_STEP_S = 1.5; // the lab's clock is known to a second
let aheadMs = 0;

// The lab's clock as its answers tell it: ages are right on a machine whose own clock is not.
export function heardAt(date) {
  if (date !== null) aheadMs = Date.parse(date) - Date.now();
}

// The lab's time in milliseconds.
export function labNow() {
  return Date.now() + aheadMs;
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min`;
  if (s < 200000) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

// How long ago something was, or in how long it will be; it goes on counting by itself.
export function age(stamp) {
  const element = h("time", { datetime: stamp, title: local(stamp) });
  count(element);
  return element;
}

function count(element) {
  const ago = (labNow() - Date.parse(element.dateTime)) / 1000;
  element.textContent = ago < -CLOCK_STEP_S ? `in ${span(-ago)}` : span(ago);
}

setInterval(() => document.querySelectorAll("time[datetime]").forEach(count), 1000);

// A text that may be cut to its place; the whole is shown on hover and focus.
export function cut(text, attributes = {}) {
  return h("span", { class: "cut", title: text, ...attributes }, text);
}

// A time in the unix seconds that report::runs uses, as an ISO stamp.
export function stampOf(seconds) {
  return new Date(seconds * 1000).toISOString();
}

export function local(stamp) {
  return new Date(stamp).toLocaleString();
}
