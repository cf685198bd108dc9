// The runs of one tag, kept up to date: read in pages once, and one by one when an event names them.

import { call } from "./lab.js";
import { digitsOf } from "./dom.js";

const FIRST_PAGE = 1000;
const PAGE = 5000;
const MOST_IDS = 500;
const [REST_MS, TROUBLED_REST_MS] = [1000, 5000];
const NUMBER = /^\d+(\.\d+)?$/; // of a run behind its tag, or of a further run

export class Runs {
  constructor(tag) {
    this.tag = tag;
    this.rows = []; // newest first; each { id, number, status, value, gain, ... } as report::runs names them
    this.metric = this.direction = this.sigma = null;
    this.total = 0;
    this.version = 0; // counts the changes
    this.complete = false; // every run has been read
    this.problem = null;
    this.listeners = new Set();
    this.byId = new Map();
    this.waiting = new Set(); // ids that events have named
    this.ended = this.isCut = false;
    this.turn = Promise.resolve();
    this.timer = null;
    this.readAgain();
  }

  // Digits after the point of a value, a gain and the noise.
  get digits() {
    return digitsOf(this.sigma);
  }

  get isMinimized() {
    return this.direction !== "maximize";
  }

  // Calls this each time that the runs have changed, and now if there are some; answers how to end that.
  listen(listener) {
    this.listeners.add(listener);
    if (this.metric !== null || this.problem !== null) listener();
    return () => this.listeners.delete(listener);
  }

  hear({ subject, data }) {
    for (const id of [subject, data?.experiment_id, data?.best_experiment_id]) {
      if (typeof id === "string" && id.startsWith(`${this.tag}-`) && NUMBER.test(id.slice(this.tag.length + 1))) this.waiting.add(id);
    }
    if (this.waiting.size > 0) this.soon();
  }

  soon() {
    const rest = this.problem === null ? REST_MS : TROUBLED_REST_MS;
    if (this.timer === null && !this.ended) this.timer = setTimeout(() => this.readNamed(), rest);
  }

  async readNamed() {
    this.timer = null;
    const ids = [...this.waiting].slice(0, MOST_IDS);
    for (const id of ids) this.waiting.delete(id);
    await this.read({ ids });
    if (this.problem !== null) for (const id of ids) this.waiting.add(id);
    else if (this.isCut) await this.readAgain();
    if (this.waiting.size > 0) this.soon();
  }

  async readAgain() {
    let before = null;
    this.complete = false;
    do {
      before = await this.read({ limit: before === null ? FIRST_PAGE : PAGE, before });
    } while (before !== null && !this.ended);
    this.isCut = this.problem !== null; // the next read that is answered begins anew
    this.complete = before === null && !this.isCut;
    this.tell();
  }

  // Reads some runs; answers where the next page begins. One read at a time: an older answer never comes last.
  read(which) {
    this.turn = this.turn.then(() => this.readNow(which));
    return this.turn;
  }

  async readNow(which) {
    if (this.ended || this.tag === null) return null;
    try {
      const { runs, next_before: next, metric, direction, sigma, total } = await call("/api/report/runs", { tag: this.tag, ...which });
      if (this.ended) return null;
      Object.assign(this, { metric, direction, sigma, total, problem: null });
      this.take(runs);
      return next ?? null;
    } catch (problem) {
      this.problem = [problem.message, problem.hint].filter(Boolean).join(": ");
      return null;
    } finally {
      this.tell();
    }
  }

  take(columns) {
    let isSorted = true;
    for (const row of rowsOf(columns)) {
      const known = this.byId.get(row.id);
      if (known !== undefined) {
        Object.assign(known, row);
        continue;
      }
      isSorted &&= this.rows.length === 0 || row.number < this.rows.at(-1).number;
      this.byId.set(row.id, row);
      this.rows.push(row);
    }
    if (!isSorted) this.rows.sort((one, other) => other.number - one.number);
  }

  tell() {
    this.version += 1;
    if (!this.ended) for (const listener of this.listeners) listener();
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
    this.listeners.clear();
  }
}

// The rows of report::runs, each with its verdict. A baseline beat nothing: it is called a baseline, not a keep.
export function rowsOf(columns) {
  const names = Object.keys(columns).filter((name) => columns[name] !== null);
  return columns.id.map((_, nth) => {
    const row = Object.fromEntries(names.map((name) => [name, columns[name][nth]]));
    row.status = stateOf(row);
    return { ...row, verdict: verdictOf(row) };
  });
}

const OPEN = new Set(["registered", "queued", "leased", "running"]);
const FAILED = new Set(["crash", "timeout", "invalid", "lost"]);

export function isOpen(status) {
  return OPEN.has(status);
}

export function stateOf({ status, baseline }) {
  return baseline && status === "keep" ? "baseline" : status;
}

// The verdicts that colours and marks show, of the many states of a run.
export function verdictOf({ status, trust }) {
  if (OPEN.has(status)) return "running";
  if (trust === "demoted" || status === "retracted") return "demoted";
  if (status === "keep" || status === "baseline") return status;
  return FAILED.has(status) ? "crash" : "discard";
}

// What the evidence for a keep is, in words.
export const TRUST = {
  first: "first: nothing was there to compare it with",
  provisional: "provisional: it runs again on another seed",
  unconfirmed: "unconfirmed: it has not run again",
  confirmed: "confirmed by further runs, or ahead by more than noise explains",
  claimed: "claimed: only its agent has measured it",
  demoted: "demoted: further runs did not confirm it",
};

// Parts of the address that filter the runs, beside the words of `q`.
export const FILTERS = ["status", "category", "branch", "agent"];

export function isFiltered(address) {
  return ["q", ...FILTERS].some((name) => address[name]);
}

// Which rows the filter lets through: every word must be somewhere in the row, `name:word` in that column.
export function matching({ q = "", status: state, category, branch, agent }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) => {
    if (state && row.status !== state && row.trust !== state) return false;
    if (category && row.category !== category) return false;
    if (branch && row.branch !== branch) return false;
    if (agent && (row.agent ?? row.worker) !== agent) return false;
    return words.every((word) => {
      const [, name, wanted] = /^([a-z]+):(.+)$/.exec(word) ?? [];
      const within = name && name in row ? String(row[name] ?? "") : `${row.id} ${row.status} ${row.trust ?? ""} ${row.description} ${row.hypothesis} ${row.agent ?? ""} ${row.worker ?? ""} ${row.gpu ?? ""} ${row.category}`;
      return within.toLowerCase().includes(name && name in row ? wanted : word);
    });
  };
}

// The word of a run's badge.
export function wordOf({ status, trust, near_miss: isNear }) {
  if (status === "baseline") return status;
  return trust === "first" || trust === "demoted" ? trust : isNear ? "near miss" : status;
}
