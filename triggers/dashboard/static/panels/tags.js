// The lines of research, one to choose; without any, what to do first.

import { PROGRAM, h, number, sync } from "../dom.js";
import { get } from "../lab.js";

export function tags() {
  const list = document.querySelector("#tags .tags");
  const empty = document.getElementById("empty");
  const unknown = document.getElementById("unknown");
  const research = document.getElementById("research");

  return {
    id: "tags",
    every: 15000,
    touches: (event) => event.tag !== null,

    async read() {
      const [found, pool] = await Promise.all([get("/api/report/tags"), get("/api/pool/list")]);
      return { tags: found.tags, workers: pool.total - pool.offline };
    },

    show({ tags: found, workers }, view) {
      empty.hidden = found.length > 0;
      if (found.length === 0) sync(empty, [{ workers }], () => "empty", firstSteps);
      view.known(found);
      const isUnknown = found.length > 0 && !found.some((tag) => tag.name === view.tag);
      unknown.hidden = !isUnknown;
      research.hidden = found.length === 0 || isUnknown;
      if (isUnknown) unknown.replaceChildren(...known(found, view));
      sync(list, found.map((tag) => ({ ...tag, chosen: tag.name === view.tag })), (tag) => tag.name, (tag) => card(tag, view));
      const chosen = found.find((tag) => tag.name === view.tag);
      document.title = title(chosen);
    },
  };
}

function title(tag) {
  if (!tag) return "Nightjar";
  return [tag.best_val_bpb === null ? "" : number(tag.best_val_bpb), tag.name, "·", "Nightjar"].filter(Boolean).join(" ");
}

function card(tag, view) {
  const best = tag.best_val_bpb === null ? "no result yet" : number(tag.best_val_bpb);
  return h("li", {},
    h("a", { href: view.link({ tag: tag.name }), "aria-current": tag.chosen ? "true" : null },
      h("b", {}, tag.name),
      h("span", { class: "best" }, best),
      h("span", { class: "dim" }, `${of(tag)} ${tag.direction === "minimize" ? "↓" : "↑"}`),
      h("span", { class: "dim" }, `${tag.kept_experiments} kept of ${tag.total_experiments}`)));
}

// What its best is a value of. A swarm's policy says whether that is the metric or its distance from a baseline.
function of(tag) {
  return tag.branch === `swarm/${tag.name}` ? "swarm" : tag.metric;
}

// The chosen tag is not there: those that are.
function known(found, view) {
  return [
    h("h2", {}, `There is no tag ${view.tag}`),
    h("p", {}, "This lab has:"),
    h("ul", {}, found.map((tag) => h("li", {}, h("a", { href: view.link({ tag: tag.name }) }, tag.name)))),
  ];
}

function firstSteps({ workers }) {
  const steps = [
    ["Open a line of research:", `${PROGRAM} setup mar11`],
    ["Give your agent its charter and this address, and let it begin:", `program.md, ${location.origin}, tag mar11`],
  ];
  if (workers === 0) steps.unshift(["Nothing can be trained yet. Add this machine's GPUs, or a CPU slot:", `${PROGRAM} worker --repo PATH`]);
  return h("div", {},
    h("h2", {}, "No research yet"),
    h("p", {}, "This lab is running and empty. What to do next:"),
    h("ol", {}, steps.map(([what, how]) => h("li", {}, h("p", {}, what), h("pre", {}, how)))),
    h("p", {}, "This page then fills by itself. To see one that is full: ", h("code", {}, `${PROGRAM} demo`), ", a lab of its own."));
}
