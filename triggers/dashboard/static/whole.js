// Shows the keyboard's reader what hover shows others: the whole of each text that is cut in the row with the focus.

import { h } from "./dom.js";

const ROWS = "tr, li, h2, .figures > div";
const PLACES = ".cut, th, td, dd, p";
const box = h("div", { id: "whole", "aria-hidden": "true", hidden: true }); // a screen reader has the whole texts anyway

export function showWhole(ended) {
  document.body.append(box);
  const on = (name, told) => document.addEventListener(name, told, { signal: ended, capture: true });
  on("focusin", ({ target }) => tell(target));
  on("scroll", () => (box.hidden = true));
  on("keydown", ({ key }) => (box.hidden ||= key === "Escape"));
  on("focusout", () => (box.hidden = true));
  ended.addEventListener("abort", () => box.remove());
}

function tell(target) {
  const row = target.matches(":focus-visible") ? target.closest(ROWS) : null;
  const cut = row === null ? [] : [row, ...row.querySelectorAll(PLACES)].filter((place) => place.scrollWidth > place.clientWidth && place.matches(PLACES));
  const texts = [...new Set(cut.map((place) => place.textContent).filter(Boolean))];
  box.hidden = texts.length === 0;
  if (box.hidden) return;
  box.replaceChildren(...texts.map((text) => h("p", {}, text)));
  const { left, top, bottom } = row.getBoundingClientRect();
  box.style.left = `${Math.max(12, Math.min(left + 40, innerWidth - box.offsetWidth - 12))}px`;
  box.style.top = `${bottom + box.offsetHeight + 8 > innerHeight ? Math.max(8, top - box.offsetHeight - 4) : bottom + 4}px`;
}
