// What happens in the lab, newest first: filtered, and held still while somebody reads.

import { age, counted, cut, digitsOf, h, number, signed, sync } from "../dom.js";
import { action } from "../actions.js";
import { call, get } from "../lab.js";
import { Table } from "../table.js";
import { offer } from "../parts.js";
import { verdictOf } from "../runs.js";

const ROW_PX = 26;
const MOST_IDS = 100; // runs whose results are read at once for one tag
const TELLS_RESULT = /^(experiment\.(finished|retested|confirmed|revalued|demoted|promoted|refuted|retracted)|best\.changed)$/;
const LONGEST = 2000; // characters of a text
const REDUNDANT = new Set(["experiment_id", "tag", "gpu_id", "number", "val_bpb", "delta", "delta_bpb", "judged_val_bpb"]);

export const events = {
  title: "Events",
  open(place, page) {
    const types = document.querySelector("meta[name=event-types]").content.split(" ");
    const search = h("input", { type: "search", placeholder: "Filter by text", "aria-label": "filter", value: page.address.q ?? "", input: () => page.go({ q: search.value }, { replace: true }) });
    const byTag = h("select", { name: "of", "aria-label": "tag", change: () => page.go({ of: byTag.value }) });
    const byType = h("select", { name: "type", "aria-label": "type", change: () => page.go({ type: byType.value }) }, h("option", { value: "" }, "any type"), types.map((type) => h("option", {}, type)));
    const pause = h("button", { type: "button", class: "pause", "aria-pressed": "false", click: toggle }, "Pause");
    const note = h("p", { class: "dim note", role: "status" });
    const letters = h("section", { class: "panel", id: "letters", hidden: true });
    place.append(h("div", { class: "bar" }, search, byTag, byType, pause, note), letters);
    const table = new Table(place, {
      label: "events",
      key: ({ id }) => id,
      open: (event) => page.go({ tag: event.tag, view: "run", run: event.subject }),
      opens: isRun,
    });
    const handlers = h("details", { class: "handlers" }, h("summary", {}), h("ul", {}));
    place.append(handlers);
    const results = new Map(); // by run: its row of report::runs, as the table of runs shows it
    const stale = new Set(); // runs that have changed since
    let held = null; // the events that were there when the reader paused
    let newest; // the first row that is shown
    let frame = null;

    function toggle() {
      held = held === null ? [...page.events] : null;
      draw();
    }

    function soon() {
      frame ??= requestAnimationFrame(draw); // a burst is drawn once
    }

    function draw() {
      cancelAnimationFrame(frame);
      frame = null;
      const { address, events: all } = page;
      const waiting = held === null ? 0 : all.findIndex(({ nth }) => nth === held[0]?.nth);
      pause.textContent = held === null ? "Pause" : `Resume (${waiting < 0 ? all.length : waiting})`;
      pause.setAttribute("aria-pressed", String(held !== null));
      offer(byTag, [...new Set([...(page.tags ?? []).map(({ name }) => name), ...all.map(({ tag }) => tag)])].filter(Boolean).sort(), address.of ?? "", "any tag");
      byType.value = address.type ?? "";
      const wanted = matching(address);
      const rows = (held ?? all).filter(wanted).map((event) => ({ ...event, run: results.get(event.subject) ?? null }));
      const above = rows.findIndex(({ id }) => id === newest);
      newest = rows[0]?.id;
      note.textContent = counted(rows.length, "event");
      table.show({ columns: columnsOf(page), rows, empty: all.length ? "No event matches this filter." : "No event yet." });
      if (table.scroll.scrollTop > 0 && above > 0) table.scroll.scrollTop += above * ROW_PX; // what is read stays in its place
    }

    draw();
    return {
      every: 10000,
      touches: () => true,
      hear(event) {
        stale.add(event.subject);
        soon();
      },
      moved: draw,
      async read() {
        const wanted = unread(page.events, (id) => !results.has(id) || stale.has(id));
        for (const id of wanted.flatMap(({ ids }) => ids)) {
          stale.delete(id);
          if (!results.has(id)) results.set(id, null); // one that has no row is not asked for again
        }
        try {
          const [status, dead, ...found] = await Promise.all([get("/api/lab/status"), call("/api/event/dead", { limit: 50 }), ...wanted.map((body) => call("/api/report/runs", body))]);
          return { status, dead, found };
        } catch (problem) {
          for (const id of wanted.flatMap(({ ids }) => ids)) stale.add(id);
          throw problem;
        }
      },
      show({ status, dead, found }) {
        for (const { runs, sigma } of found) runs.id.forEach((id, nth) => results.set(id, resultOf(runs, nth, sigma)));
        letters.hidden = dead.total === 0;
        letters.replaceChildren(...deadLetters(dead, page));
        lags(handlers, status.events.bindings);
        draw();
      },
      end() {
        cancelAnimationFrame(frame);
        table.end();
      },
    };
  },
};

function isRun({ tag, subject }) {
  return tag !== null && subject.startsWith(`${tag}-`) && /-\d+$/.test(subject);
}

// Requests for the results of runs that events name, newest first.
function unread(all, isWanted) {
  const byTag = new Map();
  for (const event of all) {
    const ids = byTag.get(event.tag) ?? byTag.set(event.tag, new Set()).get(event.tag);
    if (isRun(event) && isWanted(event.subject) && ids.size < MOST_IDS) ids.add(event.subject);
  }
  return [...byTag].filter(([, ids]) => ids.size > 0).map(([tag, ids]) => ({ tag, ids: [...ids] }));
}

function resultOf(runs, nth, sigma) {
  const of = (name) => runs[name][nth];
  return { value: of("value"), gain: of("gain"), verdict: verdictOf({ status: of("status"), trust: of("trust") }), status: of("status"), sigma };
}

function matching({ of = "", type = "", q = "" }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return (event) => {
    if (event.type === "reset") return true; // a gap is everybody's business
    if ((of && event.tag !== of) || (type && event.type !== type)) return false;
    const text = words.length ? `${event.type} ${event.subject} ${textOf(event)}`.toLowerCase() : "";
    return words.every((word) => text.includes(word));
  };
}

function textOf({ data, subject, tag }) {
  return Object.entries(data).filter(([name, value]) => value !== null && value !== subject && value !== tag && !REDUNDANT.has(name))
    .map(([name, value]) => (typeof value === "string" ? value : `${name} ${name === "p_better" ? value.toFixed(2) : typeof value === "number" ? Number(value.toPrecision(6)) : JSON.stringify(value)}`)).join(" · ").slice(0, LONGEST);
}

function columnsOf(page) {
  const result = (event) => (TELLS_RESULT.test(event.type) ? event.run : null);
  return [
    { id: "time", title: "Age", width: 68, number: true, cell: (event) => age(event.time) },
    { id: "type", title: "Event", width: 176, cell: (event) => cut(event.type, event.type === "reset" ? { class: "cut problem" } : {}) },
    { id: "subject", title: "Of", width: 116, cell: (event) => (isRun(event) ? h("a", { class: "cut", title: event.subject, href: page.to({ tag: event.tag, view: "run", run: event.subject }) }, event.subject) : cut(event.subject)) },
    { id: "result", title: "Value", about: "value and gain of the run as the table of runs shows them now", width: 88, number: true, cell: (event) => number(result(event)?.value, digitsOf(result(event)?.sigma)) },
    { id: "gained", title: "Gain", width: 96, number: true, cell: (event) => signed(result(event)?.gain, { digits: digitsOf(result(event)?.sigma), isKept: event.run?.verdict === "keep" }) },
    { id: "text", title: "What happened", wide: true, cell: (event) => cut(textOf(event)) },
  ];
}

function deadLetters({ dead, total }, page) {
  const redrive = (name, title, which) => action(page, { name, title, text: "It is handled again. If that fails again, it comes back.", path: "/api/event/redrive", body: () => which });
  const discard = (name, title, which) => action(page, { name, title, text: "It is deleted for good, and never handled.", path: "/api/event/discard", body: () => which });
  const all = counted(total, "dead letter");
  return [
    h("header", {}, h("h2", { class: "problem" }, all), h("p", { class: "dim note" }, "events whose handler failed too often"),
      redrive("Redrive all", "Redrive every dead letter?", { all: true }), discard("Discard all", "Discard every dead letter, also those that arrive meanwhile?", { all: true })),
    h("ul", { class: "listing" }, dead.map((letter) => h("li", { "data-key": letter.id },
      h("b", {}, cut(letter.binding)), cut(`${letter.event.type ?? ""} ${letter.event.subject ?? ""}`.trim()),
      cut(letter.error, { class: "cut problem" }), h("span", { class: "dim" }, `${letter.deliveries} tries`),
      redrive("Redrive", `Redrive ${letter.event.type ?? "an event"} ${letter.event.subject ?? ""} (${letter.id}) to ${letter.binding}?`, { id: letter.id }),
      discard("Discard", `Discard ${letter.event.type ?? "an event"} ${letter.event.subject ?? ""} (${letter.id}) of ${letter.binding}?`, { id: letter.id })))),
  ];
}

// How far each handler is behind.
function lags(element, bindings) {
  const rows = Object.entries(bindings).map(([name, { undelivered, unacknowledged, oldest_s: oldest }]) => ({ name, waiting: undelivered ?? 0, handled: unacknowledged ?? 0, oldest }));
  const behind = rows.filter(({ waiting, handled }) => waiting + handled > 0);
  element.firstElementChild.textContent = `${counted(rows.length, "handler")}, ${behind.length ? `${behind.length} with events to handle` : "none behind"}`;
  sync(element.lastElementChild, rows.sort((one, other) => other.waiting - one.waiting), ({ name }) => name, ({ name, waiting, handled, oldest }) =>
    h("li", {}, cut(name), h("span", { class: "dim" }, `${waiting} waiting, ${handled} being handled${oldest === null ? "" : `, oldest ${Math.round(oldest)} s`}`)));
}
