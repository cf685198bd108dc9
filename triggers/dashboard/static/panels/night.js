// What the chosen tag has brought, before anything else: the best, the gain, the pace, the time since the last keep.

import { age, h, number, sync } from "../dom.js";
import { call } from "../lab.js";

export function night() {
  const [figures, headline] = ["dl", ".headline"].map((part) => document.querySelector(`#night ${part}`));

  return {
    id: "night",
    rest: 3000,
    every: 60000,
    touches: (event, view) => event.tag === view.tag && /^(experiment\.(finished|retested|demoted|confirmed|retracted)|best\.)/.test(event.type),

    async read({ tag }) {
      return tag === null ? null : { asked: tag, ...(await call("/api/report/night", { tag, changes: false })) };
    },

    show(found, view) {
      if (found === null || found.asked !== view.tag) return;
      headline.textContent = headline.title = found.headline;
      const sure = found.further_runs ? `mean of ${found.further_runs} more` : found.best === null ? "" : "one run";
      sync(figures, [
        { name: `Best ${found.metric}`, value: found.best === null ? "none yet" : number(found.best), more: sure, run: found.best_experiment_id },
        { name: "Gain", value: gain(found), more: found.gain === null ? "" : `${number(found.first)} to ${number(found.last)}` },
        { name: "Runs an hour", value: found.runs_an_hour === null ? "not known yet" : number(found.runs_an_hour, found.runs_an_hour < 10 ? 1 : 0), more: `${counted(found.ideas, "idea")}, ${found.kept} kept` },
        { name: "Last keep", at: found.last_keep_at, value: "none yet", more: found.demoted ? `${counted(found.demoted, "lucky win")} caught` : "" },
      ], ({ name }) => name, (figure) => cell(figure, found.tag, view));
    },
  };
}

function gain({ best, gain: by }) {
  if (by === null) return best === null ? "none yet" : "not known";
  return `${by > 0 ? "+" : ""}${number(by)}`;
}

function counted(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

function cell({ name, value, more, run, at }, tag, view) {
  const told = at ? [age(at), " ago"] : [value];
  return h("div", {}, h("dt", {}, name),
    h("dd", {}, run ? h("a", { href: view.link({ tag, run }) }, ...told) : told),
    h("dd", { class: "dim" }, more));
}
