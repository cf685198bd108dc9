// A run in words and named values, as experiment::get and report::runs answer it.
//
// A value is a string, { at } for a time, or { runs } for links to runs.

import { PROGRAM, age, digitsOf, h, number, span } from "./dom.js";
import { call, get } from "./lab.js";
import { TRUST, isOpen, rowsOf, stateOf, verdictOf } from "./runs.js";

const LATER = 500; // runs after a run that are searched for its children
const MEASURED = ["training_seconds", "wall_seconds", "cpu_seconds", "peak_vram_mb", "num_params_m", "num_steps", "total_tokens_m", "mfu_percent", "depth"];

// A run with its row, its children among the next runs, and the noise of its tag. A retest has no row of its own.
export async function readRun(id) {
  const answer = await get(`/api/experiment/${encodeURIComponent(id)}`);
  const e = answer.experiment;
  const { runs, metric, sigma } = await call("/api/report/runs", { tag: e.tag, before: e.number + LATER + 1, limit: LATER + 1 });
  const rows = rowsOf(runs);
  const row = rows.find((found) => found.id === e.id) ?? { value: ownValue(e), trust: null, near_miss: false };
  const children = rows.filter(({ parents }) => parents.includes(e.id)).map((found) => found.id);
  const gain = answer.gain?.by ?? null;
  const status = stateOf(e);
  return {
    ...answer, id: e.id, e, children, metric, sigma, digits: digitsOf(sigma), gain, isOpen: isOpen(e.status),
    row: { ...row, status, verdict: verdictOf({ ...row, status }) },
    sigmas: sigma && gain !== null ? gain / sigma : null,
  };
}

// Whether it is judged by its difference to its worker's baseline.
const byDelta = (e) => e.delta_bpb !== null && !e.by_value;

// The value of one run, without other runs of its code.
export const ownValue = (e) => (byDelta(e) ? e.delta_bpb : e.val_bpb);

// Whether a swarm's worker ran it: constants are all that it changed.
export function isOfSwarm(e) {
  return e.worker_id !== null;
}

// A gain in standard deviations of the noise.
export function inSigmas(sigmas) {
  return `${sigmas > 0 ? "+" : ""}${number(sigmas, Math.abs(sigmas) < 100 ? 1 : 0)}`;
}

// Why it has its verdict, in a sentence or two.
export function why({ e, row, isOpen: open }) {
  if (open) return waiting(e);
  const beside = e.compared_with ? ` ${e.compared_with}` : " the best of its time";
  const said = {
    keep: e.baseline ? "The tag's baseline" : e.trust === "first" ? null : `Better than${beside}`,
    discard: e.claimed && e.measured_by === null || e.trust === "demoted" || e.over_budget || e.guard ? null : row.near_miss ? `Within the margin of${beside}` : `Not better than${beside}`,
    measured: `A further run of ${e.retest_of} on seed ${e.seed}`,
    retracted: `Taken back: ${e.retracted_because}`,
    stopped: `Stopped: ${e.stop_reason ?? e.reason ?? e.error ?? "on request"}`,
    lost: "Its worker or its agent fell silent",
    crash: e.error_kind && e.error_kind !== "other" ? `It failed: ${e.error_kind}` : "It failed",
    timeout: "It ran longer than it may",
    invalid: "Its result counts for nothing",
  }[e.status];
  const trust = TRUST[row.trust] ?? null;
  const likely = e.p_better === null || e.status !== "keep" ? null : `truly better than the best of its time with a probability of ${Math.round(e.p_better * 100)} %`;
  return sentences([said, trust, likely, e.status === "stopped" ? null : e.reason]);
}

function waiting(e) {
  if (e.stopping) return "It is asked to stop: its worker ends it within seconds.";
  const done = e.last_progress === null ? "" : `: ${Math.round(e.last_progress * 100)} % done`;
  return {
    registered: "Its agent trains it and reports the value.",
    queued: "It waits for a GPU.",
    leased: `${e.gpu_id} is lent to it: its worker prepares the code.`,
    running: `It trains on ${e.gpu_id ?? e.gpu_type ?? "its worker"}${done}.`,
  }[e.status];
}

function sentences(parts) {
  return [...new Set(parts.filter(Boolean))].map((part) => `${part[0].toUpperCase()}${part.slice(1).replace(/\.$/, "")}.`).join(" ");
}

// What a person does next with it: a sentence, and commands to type.
export function next({ e, row, diff }) {
  if (e.status === "registered") return ["Wait for its agent, or stop it.", []];
  if (e.status === "queued") return ["The view GPUs shows who has one.", []];
  if (isOpen(e.status)) return ["Follow its log, here or in a terminal.", [`${PROGRAM} logs ${e.id} --follow`]];
  if (e.retest_of !== null) return [`Its value is evidence for ${e.retest_of}.`, []];
  const [again, code] = [`${PROGRAM} retest ${e.id}`, isOfSwarm(e) ? [] : [`${PROGRAM} take ${e.id}`, ...(diff ? [`${PROGRAM} diff ${e.id}`] : [])]];
  if (e.status === "keep") return [row.trust === "provisional" ? "Wait for its further run, which decides whether it stays kept." : "Build the next idea on its code.", isOfSwarm(e) ? [`${PROGRAM} best ${e.tag} --write train.py`] : code];
  if (row.trust === "claimed") return ["Run it again, so that the lab measures it.", [again, ...code]];
  if (row.near_miss) return ["Run it again, or combine it with the best.", [again, ...code]];
  if (e.status === "discard") return ["Try something else. Its code stays there.", code];
  if (e.status === "retracted") return ["Nothing builds on it any more. Its code stays there.", code];
  if (e.error_kind === "infra" || ["stopped", "lost"].includes(e.status)) return ["Its code was not at fault: submit it again if the idea is worth it.", code];
  return ["Mend what the error names, and submit it anew.", code];
}

// Facts as [name, value]; what is not known is left out.
export function facts({ e, retests, children, claim, digits, certificate, transfers }) {
  const seconds = e.wall_seconds ?? (e.started_at && e.finished_at ? (Date.parse(e.finished_at) - Date.parse(e.started_at)) / 1000 : null);
  const judged = e.judged_val_bpb ?? ownValue(e);
  return known({
    category: e.category,
    [isOfSwarm(e) ? "worker" : "agent"]: e.agent,
    "made from": e.parent_ids.length ? { runs: e.parent_ids } : null,
    "built on it": children.length ? { runs: children } : null,
    "compared with": e.compared_with ? { runs: [e.compared_with] } : null,
    "a further run of": e.retest_of ? { runs: [e.retest_of] } : null,
    "same code as": e.duplicate_of ? { runs: [e.duplicate_of] } : null,
    branch: e.trace_id,
    attempt: e.attempt > 1 ? e.attempt : null,
    "trained by": e.attempt === 0 && !isOfSwarm(e) ? "its agent" : null,
    GPU: e.gpu_id ?? e.gpu_type,
    "this run measured": judged === e.val_bpb ? null : !byDelta(e) ? number(e.val_bpb, digits) : `${number(e.val_bpb, digits)}, its worker's baseline ${number(e.baseline_bpb, digits)}`,
    score: e.reported === null ? e.score : `${e.score}; ${e.claimed ? "its agent said" : "train.py printed"} ${number(e.reported, digits)}`,
    claimed: e.claimed && e.measured_by === null ? "only its agent has measured it" : null,
    "over budget": e.over_budget ? e.reason ?? "yes" : null,
    guard: e.guard,
    contended: e.contended ? "another program slowed an attempt down: its value counts for nothing, and it ran again" : null,
    hung: e.hung ? "after it had printed its result: its worker ended it" : null,
    "further runs": retests.length ? `${retests.length}` : null,
    "may be claimed": claim.claimed_bpb === null ? null
      : `${number(claim.claimed_bpb, digits)}${claim.claimed_interval === null ? "" : `, 95 % interval ${claim.claimed_interval.map((end) => number(end, digits)).join(" to ")}`}`,
    certificate: certificate && certified(certificate),
    transfer: transfers.map(transferred).join(" \u00b7 ") || null,
    [isOfSwarm(e) ? "config" : "commit"]: e.commit_sha,
    "other code than its patch": e.diff_differs ? "the commit was trained" : null,
    seed: e.seed,
    took: seconds === null ? null : span(seconds),
    finished: e.finished_at ? { at: e.finished_at } : null,
    stopped: e.stop_reason,
    failure: e.error_kind,
  });
}

function certified({ state, against, min_gain: margin, alpha, pairs, reason }) {
  const count = pairs.filter(({ measured }) => measured !== null).length;
  return `${state}, ${count} pairs: a gain over ${against}${margin ? ` beyond ${margin}` : ""} at alpha ${alpha}${reason ? `; ${reason}` : ""}`;
}

function transferred({ state, against, gain, own_budget_s: own, longer_gain: longer, budget_s: budget, pairs, reason }) {
  const signed = (value) => `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))}`;
  return `${state}: gain over ${against} ${signed(gain)} at ${own} s${longer === null ? "" : `, ${signed(longer)} at ${budget} s`}, ${pairs} pairs${reason ? `; ${reason}` : ""}`;
}

// What it measured beside its value, as [name, value].
export function metrics({ e, metric }) {
  const { val_bpb: _, [metric]: __, ...printed } = e.metrics ?? {};
  const all = { ...Object.fromEntries(MEASURED.map((name) => [name, e[name] ?? null])), ...printed };
  return known(Object.fromEntries(Object.entries(all).map(([name, value]) => [name, typeof value === "number" ? String(Number(value.toPrecision(7))) : value])));
}

// The constants that it set, as [name, value].
export function constants({ e }) {
  return Object.entries(e.config_delta ?? {}).map(([name, value]) => [name, JSON.stringify(value)]);
}

function known(values) {
  return Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [name, typeof value === "object" ? value : String(value)]);
}

export function runLink(page, id) {
  return h("a", { href: page.to({ tag: id.replace(/-\d+(\.\d+)?$/, ""), view: "run", run: id }) }, id);
}

// What shows a value of `facts`.
export function shown(value, page) {
  if (typeof value === "string") return value;
  if (value.at) return [age(value.at), " ago"];
  return value.runs.flatMap((id, nth) => [nth ? ", " : null, runLink(page, id)]);
}
