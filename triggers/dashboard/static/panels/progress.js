// The chosen tag's plot, drawn by report::progress, and how its search goes on.

import { picture, call } from "../lab.js";
import { number } from "../dom.js";

export function progress() {
  const image = document.querySelector("#progress img");
  const note = document.querySelector("#progress .plot p");
  const aside = document.querySelector("#progress .aside");
  let shownTag = null;

  return {
    id: "progress",
    rest: 4000, // drawing takes the lab some tenths of a second
    touches: (event, view) =>
      event.tag === view.tag && ["experiment.finished", "experiment.retested", "best.changed", "strategy.changed"].includes(event.type),

    async read(view) {
      const { tag } = view;
      if (tag === null) return null;
      const drawn = picture(`/api/report/progress.svg?${new URLSearchParams({ tag })}`);
      drawn.catch(() => {}); // awaited below, where a refusal is shown
      const summary = await call("/api/report/summary", { tag });
      if (tag === view.tag) tell(summary); // the words need not wait for the picture
      return { tag, plot: await drawn, summary };
    },

    show(answer, view) {
      if (answer === null || answer.tag !== view.tag) return;
      const { stats, best } = answer.summary;
      const before = image.src;
      image.src = URL.createObjectURL(answer.plot);
      image.hidden = false;
      note.textContent = "";
      image.alt = `${answer.tag}: ${stats.total} experiments, ${stats.kept} kept, best ${best ? number(best.val_bpb) : "none"}`;
      if (before) URL.revokeObjectURL(before);
      shownTag = answer.tag;
    },

    end() {
      if (image.src) URL.revokeObjectURL(image.src);
    },

    failed() {
      if (shownTag !== null) return; // the old picture is better than none
      image.hidden = true;
      note.textContent = "no plot";
    },
  };

  function tell({ strategy, stats, noise, false_keeps_at_least: falsely }) {
    const trust = noise === null || falsely === null ? ""
      : ` · noise ${number(noise.sigma)}, at least ${Math.round(falsely * 100)} % of the keeps are luck`;
    aside.textContent =
      `${stats.running} running, ${stats.queued} queued, ${stats.crashed} crashed${trust} · ${strategy.mode}: ${strategy.reason}`;
    aside.title = aside.textContent;
  }
}
