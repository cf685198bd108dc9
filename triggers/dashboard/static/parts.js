// Parts that several views are made of.

import { VERDICTS } from "./charts.js";
import { PROGRAM, age, badge, fill, h } from "./dom.js";

const OFTEN_CUT = 20; // characters: a longer text under a figure is shown whole on focus

export function panel(title, ...content) {
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, title)), ...content);
}

// Brings the options of a select to these values. `any` is the text of a first one that chooses none.
export function offer(select, values, chosen, any = null) {
  fill(select, [values, chosen], () => [any === null ? null : h("option", { value: "" }, any), ...values.map((value) => h("option", { value, selected: value === chosen }, value))]);
}

// The marks of the verdicts and of the baseline, and what else a plot shows.
export function legend(more) {
  return h("p", { class: "legend" }, Object.keys(VERDICTS).map((verdict) => badge(verdict)), h("span", { class: "dim" }, more));
}

// One of a view's numbers, or a verdict, with its name over it and `more` under it.
export function figure({ name, value, more = "", href = null, at = null, verdict = null }) {
  const shown = verdict !== null ? badge(value, verdict) : at !== null ? [age(at), " ago"] : value;
  return h("div", {}, h("dt", {}, name), h("dd", {}, href ? h("a", { href }, shown) : shown), h("dd", { class: "more", title: more, tabindex: more.length > OFTEN_CUT ? "0" : null }, more));
}

// Names with their values, as [name, value]; those without a value are left out.
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Commands with what they are for, as [what, command]; `what` may hold links.
export function commands(...steps) {
  return h("dl", { class: "commands dim" }, steps.map(([what, how]) => h("div", {}, h("dt", {}, ...[what].flat()), h("dd", {}, h("code", {}, how)))));
}

// What a view of runs shows of a tag that has none.
export function noRunYet(tag) {
  return ["No run yet. ", h("code", {}, `${PROGRAM} agent --tag ${tag} -- claude -p`), " starts an agent."];
}

// What to do where a view has nothing to show, as [what, command].
export function nextSteps(title, ...steps) {
  return h("section", { class: "empty" }, h("h2", {}, title), h("ol", {}, steps.map(([what, how]) => h("li", {}, h("p", {}, what), h("pre", {}, how)))));
}
