// The newest experiments of the chosen tag, each leading to its details.

import { badge, h, judged, number, signed, sync } from "../dom.js";
import { call } from "../lab.js";

const PAGE = 50;
const MOST = 1000;
// The evidence for a keep.
const TRUST = {
  first: ["①", "first: nothing was there to compare it with"],
  provisional: ["…", "provisional: kept until it has run once more on another seed"],
  unconfirmed: ["?", "unconfirmed: nobody has run it again"],
  confirmed: ["✓", "confirmed: borne out by further runs, or ahead by more than noise explains"],
  claimed: ["?", "claimed: only its agent has measured it, and it counts in nothing before the lab has run its code"],
  demoted: ["✗", "demoted: it was kept, and further runs did not bear it out"],
};
const NEAR = ["≈", "near miss: within the margin of the best"];
const OPEN = new Set(["registered", "queued", "leased", "running"]);

export function experiments() {
  const body = document.querySelector("#experiments tbody");
  const aside = document.querySelector("#experiments .aside");
  const metric = document.querySelector("#experiments th.metric");
  const older = document.querySelector("#experiments .more button");
  let limit = PAGE;
  let limitedTag = null;
  let again = null;

  const panel = {
    id: "experiments",
    every: 10000,
    touches: (event, view) => event.tag === view.tag,
    end: () => clearTimeout(again),

    async read({ tag }) {
      if (tag !== limitedTag) [limit, limitedTag] = [PAGE, tag];
      return tag === null ? null : { tag, ...(await call("/api/experiment/history", { tag, limit })) };
    },

    show(answer, view) {
      if (answer === null || answer.tag !== view.tag || !body.isConnected) return;
      const byDelta = answer.experiments.some((e) => e.delta_bpb !== null);
      const found = answer.experiments.reverse().map((e) => row(e, byDelta, answer.gains[e.id] ?? null));
      metric.textContent = byDelta ? "delta_bpb" : "Value";
      sync(body, found, (e) => e.id, (e) => show(e, view));
      aside.textContent = `${answer.total} in all`;
      older.hidden = answer.next_cursor === null || limit >= MOST;
      older.onclick = () => {
        limit = Math.min(MOST, limit + PAGE);
        dispatchEvent(new HashChangeEvent("hashchange"));
      };
      clearTimeout(again);
      // What trains says how far it is, but not by events.
      if (found.some((e) => e.status === "running")) again = setTimeout(() => refresh(view), 2000);
    },
  };
  return panel;

  async function refresh(view) {
    try {
      panel.show(await panel.read(view), view);
    } catch {
      // the next event, or the next interval, reads again and tells what is wrong
    }
  }
}

// What a row shows, so that one that looks the same stays as it is. `byDelta`: the tag's runs are judged by their
// distance from their worker's baseline.
function row(e, byDelta, gain) {
  const { id, tag, number: nth, status, category, hypothesis, agent, attempt, near_miss, duplicate_of } = e;
  const claimed = status === "discard" && e.claimed && e.measured_by === null;
  const trust = claimed ? "claimed" : e.trust;
  const open = OPEN.has(status);
  const last = e.tick_source === "report" ? e.last_metric : null; // a loss is none of the metric's values
  const lastDelta = last === null || e.baseline_bpb === null ? null : last - e.baseline_bpb;
  const value = open ? (byDelta ? lastDelta : last) : judged(e);
  return { id, tag, nth, status, category, hypothesis, agent, attempt, near_miss, trust, duplicate_of, value, open,
    progress: status === "running" ? e.last_progress : null, gain };
}

function mark([sign, meaning]) {
  return h("span", { class: "dim", title: meaning, role: "img", "aria-label": meaning }, ` ${sign}`);
}

function show(e, view) {
  const open = ({ target }) => target.closest("a") ?? (getSelection().isCollapsed && view.choose({ tag: e.tag, run: e.id }));
  return h("tr", { click: open },
    h("td", { class: "number" }, h("a", { href: view.link({ tag: e.tag, run: e.id }), title: `details of ${e.id}` }, String(e.nth))),
    h("td", {}, badge(e.status), e.trust ? mark(TRUST[e.trust]) : null, e.near_miss ? mark(NEAR) : null),
    h("td", { class: e.open ? "number dim" : "number" },
      e.progress === null ? number(e.value)
        : h("span", { class: "going" }, number(e.value, 4), h("progress", { value: e.progress, max: 1, "aria-label": "progress" }))),
    h("td", { class: "number" }, signed(e.gain)),
    h("td", {}, e.category),
    h("td", { class: "long", title: e.hypothesis }, e.hypothesis),
    h("td", { class: "short", title: e.agent ?? "" }, e.agent ?? ""),
    h("td", { class: "number dim" }, e.attempt ? String(e.attempt) : "own"));
}
