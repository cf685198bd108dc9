// One experiment in full, over the page: hypothesis, numbers, patch, error, log.

import { badge, delta, h, number, span } from "../dom.js";
import { get } from "../lab.js";

const LINES = 3000;

export function run() {
  const dialog = document.getElementById("run");
  let shown = null;
  let choose = null;
  const close = () => dialog.close();
  dialog.addEventListener("close", () => choose?.());

  return {
    id: "run",
    every: 3000,
    touches: (event, view) => view.run !== null && event.subject === view.run,

    async read({ run: id }) {
      return id === null ? null : { id, ...(await get(`/api/experiment/${encodeURIComponent(id)}`)) };
    },

    show(answer, view) {
      if (answer === null || answer.id !== view.run) {
        if (view.run === null && dialog.open) dialog.close();
        return;
      }
      choose = () => view.run !== null && view.choose({ tag: view.tag });
      const state = JSON.stringify(answer);
      if (dialog.open && state === shown) return;
      shown = state;
      const place = dialog.querySelector(".body")?.scrollTop ?? 0;
      const hadFocus = dialog.contains(document.activeElement) && document.activeElement.matches("button");
      dialog.replaceChildren(...content(answer, close));
      dialog.querySelector(".body").scrollTop = place;
      if (hadFocus) dialog.querySelector("button").focus();
      if (!dialog.open) dialog.showModal();
    },

    failed(problem) {
      dialog.replaceChildren(closing(close, h("h2", { id: "run-title" }, "Not found")), h("p", { class: "body" }, `${problem.message}. ${problem.hint}`));
      shown = null;
      if (!dialog.open) dialog.showModal();
    },
  };
}

function content(answer, close) {
  const e = answer.experiment;
  return [
    closing(close, h("h2", { id: "run-title" }, e.id), badge(e.status), h("b", {}, number(e.val_bpb)), delta(e.delta)),
    h("div", { class: "body", tabindex: "0" },
      h("p", { class: "hypothesis" }, e.hypothesis),
      h("dl", { class: "facts" }, facts(answer).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      e.error ? section("Error", text(e.error, "error")) : null,
      section("Patch", answer.diff === null ? h("p", { class: "dim" }, "Only the commit is known.") : patch(answer.diff)),
      answer.log_tail ? section("Log", text(answer.log_tail)) : null,
      h("p", {}, h("a", { href: `/api/experiment/${encodeURIComponent(e.id)}` }, "Everything as JSON"))),
  ];
}

function closing(close, ...title) {
  return h("header", {}, ...title, h("button", { type: "button", click: close }, "Close"));
}

function facts({ experiment: e, retests, claim }) {
  const seconds = e.started_at && e.finished_at ? (Date.parse(e.finished_at) - Date.parse(e.started_at)) / 1000 : null;
  const all = {
    "what changed": e.description,
    category: e.category,
    agent: e.agent,
    attempt: e.attempt || "the agent's own run",
    GPU: e.gpu_id,
    score: e.reported === null ? e.score : `${e.score}; ${e.claimed ? "its agent said" : "train.py printed"} ${number(e.reported)}`,
    claimed: e.claimed && e.measured_by === null ? "only its agent has measured it" : null,
    trust: e.trust,
    "truly better than the best of its time": e.p_better === null ? null : `with a probability of ${Math.round(e.p_better * 100)} %`,
    "run again": retests.map((r) => (r.val_bpb === null ? `${r.status} (seed ${r.seed})` : `${number(r.val_bpb)} (seed ${r.seed})`)).join(", "),
    "may be claimed": claim.claimed_interval === null ? null
      : `${number(claim.claimed_bpb)}, 95 % interval ${claim.claimed_interval.map((end) => number(end)).join(" to ")}`,
    commit: e.commit_sha,
    parents: e.parent_ids.join(", "),
    "tried before as": e.duplicate_of,
    progress: e.status === "running" && e.last_progress !== null ? `${Math.round(e.last_progress * 100)} %` : null,
    took: seconds === null ? null : span(seconds),
    finished: e.finished_at ? new Date(e.finished_at).toLocaleString() : null,
    "peak memory": e.peak_vram_mb === null ? null : `${number(e.peak_vram_mb, 1)} MB`,
    parameters: e.num_params_m === null ? null : `${number(e.num_params_m, 3)} M`,
    steps: e.num_steps,
    stopped: e.stop_reason,
    failure: e.error_kind,
  };
  return Object.entries(all).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([n, v]) => [n, String(v)]);
}

function section(title, ...children) {
  return h("section", {}, h("h3", {}, title), ...children);
}

function text(content, kind = "log") {
  return h("pre", { class: kind, tabindex: "0" }, content);
}

function patch(diff) {
  const lines = diff.split("\n");
  const cut = lines.length > LINES ? [h("span", { class: "dim" }, `${lines.length - LINES} more lines`)] : [];
  return h("pre", { class: "patch", tabindex: "0" }, ...lines.slice(0, LINES).map((line) => h("span", { class: kindOf(line) }, `${line}\n`)), ...cut);
}

function kindOf(line) {
  if (/^(diff |index |--- |\+\+\+ |new file|deleted file|similarity|rename )/.test(line)) return "file";
  return { "+": "added", "-": "removed", "@": "hunk" }[line[0]] ?? null;
}
