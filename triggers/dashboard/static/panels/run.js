// One experiment in full, over the page: hypothesis, numbers, curve, patch, error, log. While it runs, what it prints and
// reports comes by a stream.

import { curve } from "../curve.js";
import { badge, h, judged, number, signed, span } from "../dom.js";
import { followRun, get } from "../lab.js";

const LINES = 3000;
const OPEN = new Set(["registered", "queued", "leased", "running"]);

export function run() {
  const dialog = document.getElementById("run");
  let shown = null;
  let choose = null;
  let stream = null; // of the run that is shown: { id, end, lines, ticks }
  const close = () => dialog.close();
  dialog.addEventListener("close", () => {
    follow(null);
    choose?.();
  });

  function follow(id) {
    if (id === (stream?.id ?? null)) return;
    stream?.end();
    const begun = id === null ? null : { id, lines: null, ticks: [] };
    stream = begun;
    if (begun === null) return;
    begun.end = followRun(id, (lines) => {
      const last = begun.ticks.at(-1);
      const isNew = lines.progress !== null && lines.metric !== null && (lines.progress !== last?.[0] || lines.metric !== last?.[1]);
      if (isNew) begun.ticks.push([lines.progress, lines.metric]);
      begun.lines = lines;
      if (stream === begun && dialog.open) bring(dialog, begun.ticks, lines.log);
    });
  }

  return {
    id: "run",
    every: 3000,
    touches: (event, view) => view.run !== null && event.subject === view.run,
    end: () => follow(null),

    async read({ run: id }) {
      return id === null ? null : { id, ...(await get(`/api/experiment/${encodeURIComponent(id)}`)) };
    },

    show(answer, view) {
      if (answer === null || answer.id !== view.run) {
        if (view.run === null && dialog.open) dialog.close();
        return;
      }
      choose = () => view.run !== null && view.choose({ tag: view.tag });
      follow(OPEN.has(answer.experiment.status) ? answer.id : null);
      if (stream !== null && answer.ticks.length >= stream.ticks.length) stream.ticks = [...answer.ticks];
      const { ticks, log_tail: log, ...rest } = answer;
      const { last_progress, last_metric, ...e } = rest.experiment;
      const state = JSON.stringify({ ...rest, experiment: e });
      if (!dialog.open || state !== shown) {
        shown = state;
        const place = dialog.querySelector(".body")?.scrollTop ?? 0;
        const hadFocus = dialog.contains(document.activeElement) && document.activeElement.matches("button");
        dialog.replaceChildren(...content(answer, close));
        dialog.querySelector(".body").scrollTop = place;
        if (hadFocus) dialog.querySelector("button").focus();
      }
      if (!dialog.open) dialog.showModal();
      bring(dialog, stream?.ticks ?? ticks, stream?.lines?.log ?? log ?? "");
    },

    failed(problem) {
      dialog.replaceChildren(closing(close, h("h2", { id: "run-title" }, "Not found")), h("p", { class: "body" }, `${problem.message}. ${problem.hint}`));
      shown = null;
      if (!dialog.open) dialog.showModal();
    },
  };
}

// Puts what comes while it runs into its places; a reader at the end of the log stays there.
function bring(dialog, ticks, log) {
  const [drawn, said] = [dialog.querySelector(".reports"), dialog.querySelector(".said")];
  if (drawn === null) return; // it is told that there is no such run
  drawn.replaceChildren(...[curve(ticks)].filter((made) => made !== null));
  drawn.parentElement.hidden = drawn.childElementCount === 0;
  said.parentElement.hidden = log === "";
  if (said.textContent === log) return;
  const atEnd = said.scrollTop + said.clientHeight >= said.scrollHeight - 8;
  said.textContent = log;
  if (atEnd) said.scrollTop = said.scrollHeight;
}

function content(answer, close) {
  const e = answer.experiment;
  const log = section("Log", text("", "log said"));
  const isOpen = OPEN.has(e.status); // then the log is what one looks for
  return [
    closing(close, h("h2", { id: "run-title" }, e.id), badge(e.status), h("b", {}, number(judged(e))), signed(answer.gain?.by ?? null)),
    h("div", { class: "body", tabindex: "0" },
      h("p", { class: "hypothesis" }, e.hypothesis),
      h("dl", { class: "facts" }, facts(answer).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      section(e.tick_source === "report" ? "Progress" : "Progress (loss)", h("div", { class: "reports" })),
      answer.no_signal ? h("p", { class: "no-signal" }, answer.no_signal) : null,
      isOpen ? log : null,
      e.error ? section("Error", text(e.error, "error")) : null,
      constants(e),
      isOfSwarm(e) ? null : section("Patch", answer.diff === null ? h("p", { class: "dim" }, "Only the commit is known.") : patch(answer.diff)),
      isOpen ? null : log,
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
    [isOfSwarm(e) ? "worker" : "agent"]: e.agent,
    attempt: e.attempt || (isOfSwarm(e) ? null : "the agent's own run"),
    GPU: e.gpu_id,
    "this run measured": judged(e) === e.val_bpb ? null
      : e.delta_bpb === null ? number(e.val_bpb) : `${number(e.val_bpb)}, its worker's baseline ${number(e.baseline_bpb)}`,
    score: e.reported === null ? e.score : `${e.score}; ${e.claimed ? "its agent said" : "train.py printed"} ${number(e.reported)}`,
    claimed: e.claimed && e.measured_by === null ? "only its agent has measured it" : null,
    "over budget": e.over_budget ? e.reason : null,
    hung: e.hung ? "after it had printed its result: its worker ended it" : null,
    trust: e.trust,
    "truly better than the best of its time": e.p_better === null ? null : `with a probability of ${Math.round(e.p_better * 100)} %`,
    "run again": retests.map((r) => (r.val_bpb === null ? `${r.status} (seed ${r.seed})` : `${number(r.val_bpb)} (seed ${r.seed})`)).join(", "),
    "may be claimed": claim.claimed_interval === null ? null
      : `${number(claim.claimed_bpb)}, 95 % interval ${claim.claimed_interval.map((end) => number(end)).join(" to ")}`,
    [isOfSwarm(e) ? "config" : "commit"]: e.commit_sha,
    parents: e.parent_ids.join(", "),
    "tried before as": e.duplicate_of,
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

// Whether a swarm's worker ran it: constants are all that it changed.
function isOfSwarm(e) {
  return e.worker_id !== null;
}

// What it set in train.py, if anything.
function constants(e) {
  const lines = Object.entries(e.config_delta ?? {}).map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
  if (lines.length > 0) return section("Constants", text(lines.join("\n"), "constants"));
  return isOfSwarm(e) ? section("Constants", h("p", { class: "dim" }, "Its worker's train.py, unchanged.")) : null;
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
