// Parts that several views are made of.

import { age, h } from "./dom.js";

export function panel(title, ...content) {
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, title)), ...content);
}

// One of a view's numbers, with its name over it and `more` under it.
export function figure({ name, value, more = "", href = null, at = null }) {
  const shown = at === null ? value : [age(at), " ago"];
  return h("div", {}, h("dt", {}, name), h("dd", {}, href ? h("a", { href }, shown) : shown), h("dd", { class: "more", title: more }, more));
}

// Names with their values, as [name, value]; those without a value are left out.
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// What to do where a view has nothing to show, as [what, command].
export function nextSteps(title, ...steps) {
  return h("section", { class: "empty" }, h("h2", {}, title), h("ol", {}, steps.map(([what, how]) => h("li", {}, h("p", {}, what), h("pre", {}, how)))));
}
