// One run: its verdict and why, its change, its curve beside others, its log, its time, and what to do with it.

import { figure, panel } from "../parts.js";
import { action } from "../actions.js";
import { curves } from "../curves.js";
import { constants, facts, inSigmas, isOfSwarm, metrics, next, ownValue, readRun, runLink, shown, why } from "../describe.js";
import { age, badge, cut, fill, h, labNow, number, signed, span, sync } from "../dom.js";
import { followRun, get } from "../lab.js";
import { Log } from "../log.js";
import { change, changeOf } from "../patch.js";
import { wordOf } from "../runs.js";

export const run = {
  title: "Run",
  open(place, page) {
    const { run: id } = page.address;
    if (!id) {
      place.append(h("p", { class: "nothing" }, "Choose a run in ", h("a", { href: page.to({ view: "runs" }) }, "the table of runs"), "."));
      return {};
    }
    let found = null;
    let live = null; // the stream of an open run: { ticks, end }
    let changed = null; // the change that is shown: { key }
    const peers = new Map(); // id of a parent, or of the best -> its ticks

    const [title, acts] = [h("h2", {}, id), h("div", { class: "acts" })];
    const figures = h("dl", { class: "figures" });
    const reason = h("p", { class: "headline", role: "status" });
    const steps = h("p", { class: "next" });
    const idea = h("p", { class: "hypothesis" });
    const against = h("span", { class: "choice" });
    const changeNote = h("p", { class: "dim note" });
    const changePlace = h("div", { class: "held" }, change(null));
    const plot = h("div", { class: "plot small" });
    const reported = h("p", { class: "dim note" });
    const log = new Log();
    const logPanel = h("section", { class: "panel" }, h("header", {}, h("h3", {}, "Log"), log.note, log.search), log.box);
    const error = h("section", { class: "panel", hidden: true }, h("h3", {}, "Error"), h("pre", { class: "error log", tabindex: "0" }));
    const time = h("div", {});
    const [factList, metricList, constantList] = [1, 2, 3].map(() => h("dl", { class: "facts" }));
    const again = h("ul", { class: "again" });
    const againPanel = panel("Further runs", again);
    const constantPanel = panel("Constants", constantList);
    place.append(
      h("header", { class: "head" }, title, acts), figures, reason, steps, idea, error,
      h("div", { class: "columns" },
        h("section", { class: "panel" }, h("header", {}, h("h3", {}, "Change"), changeNote, against), changePlace),
        h("section", { class: "panel" }, h("header", {}, h("h3", {}, "Progress"), reported), plot)),
      logPanel, panel("Time", time), againPanel,
      h("div", { class: "columns" }, panel("Facts", factList), panel("Metrics", metricList), constantPanel),
      h("p", {}, h("a", { href: `/api/experiment/${encodeURIComponent(id)}` }, "Everything as JSON")));
    const drawn = curves(plot, lines);

    function lines() {
      if (found === null) return [];
      const { e, row, digits } = found;
      const best = bestOf(page, e);
      const beside = [...new Set([...e.parent_ids, best])].filter((name) => peers.get(name)?.length > 0);
      return [
        ...beside.map((name) => ({ name: name === best ? `${name}, the best` : `${name}, its parent`, ticks: peers.get(name), digits, colour: name === best ? "text" : "dim", dash: name === best ? "dotted" : "dashed", width: 1.5 })),
        { name: id, ticks: ticks(), digits, colour: row.verdict, width: 2.5 },
      ];
    }

    function ticks() {
      return live !== null && (found.isOpen || live.ticks.length > found.ticks.length) ? live.ticks : found.ticks;
    }

    // Follows an open run: what it prints and reports goes to its place as it comes.
    function follow() {
      if (found.isOpen && live === null) {
        log.box.classList.add("growing"); // its place keeps its height
        live = { ticks: [...found.ticks] };
        live.end = followRun(id, hear, () => (live = null)); // the next read follows it again
      } else if (!found.isOpen) {
        live?.end();
      }
    }

    function hear({ log: newest, progress, metric }) {
      log.show(newest);
      const last = live.ticks.at(-1);
      if (progress !== null && metric !== null && (progress !== last?.[0] || metric !== last?.[1])) {
        if (progress < (last?.[0] ?? 0)) live.ticks = []; // a further attempt begins anew
        live.ticks.push([progress, metric]);
        Object.assign(found.e, { last_progress: progress, last_metric: metric });
      }
      draw();
    }

    function draw() {
      const { e } = found;
      sync(figures, cells(found, page), ({ name }) => name, figure);
      reason.textContent = why(found);
      reported.textContent = ticks().length === 0 ? (found.no_signal ?? "It has reported nothing.") : e.tick_source === "report" ? "" : "its printed loss";
      reported.classList.toggle("no-signal", ticks().length === 0 && found.no_signal !== null);
      fill(time, [found.timeline, found.isOpen ? Math.round(labNow() / 1000) : 0], () => timeline(found, page));
      drawn.draw();
    }

    function drawChange() {
      const { e, diff } = found;
      const chosen = page.address.against ?? e.parent_ids[0] ?? "base";
      const choices = e.parent_ids.length > 0 ? [...e.parent_ids, "base"] : [];
      sync(against, choices.map((name) => ({ name, chosen: name === chosen })), ({ name }) => name, ({ name, chosen: isChosen }) =>
        h("button", { type: "button", "aria-pressed": String(isChosen), click: () => page.go({ against: name === e.parent_ids[0] ? null : name }, { replace: true }) }, name === "base" ? "against the base" : `against ${name}`));
      changeNote.textContent = choices.length > 0 || isOfSwarm(e) ? "" : "against the base";
      const key = JSON.stringify([chosen, chosen === "base" ? diff : [e.has_diff, found.isOpen]]);
      if (changed?.key === key) return;
      const asked = changed = { key };
      changeOf(found, chosen).then((answer) => changed === asked && changePlace.replaceChildren(...change(answer)));
    }

    async function readPeers() {
      const names = [...found.e.parent_ids, bestOf(page, found.e)].filter((name) => name && name !== id && !peers.has(name));
      for (const name of names) {
        peers.set(name, []);
        const peer = await get(`/api/experiment/${encodeURIComponent(name)}`).catch(() => ({ ticks: [] }));
        peers.set(name, peer.ticks);
        drawn.draw();
      }
    }

    return {
      every: 60000,
      touches: ({ subject, data }) => [subject, data?.experiment_id, data?.retest_of].some((name) => name === id || (typeof name === "string" && name.startsWith(`${id}.`))),
      read: () => readRun(id),
      show(answer) {
        found = answer;
        const { e } = found;
        if (e.tag !== page.address.tag) return page.go({ tag: e.tag }, { replace: true });
        follow();
        if (found.log_tail) log.show(found.log_tail);
        logPanel.hidden = e.attempt === 0 && !found.log_tail; // its agent trains it: the lab has no log
        title.replaceChildren(h("span", {}, id), cut(e.description, { tabindex: "0" }));
        idea.textContent = e.hypothesis;
        const [sentence, commands] = next(found);
        fill(steps, [sentence, commands], () => [sentence, ...commands.flatMap((command) => [" ", h("code", {}, command)])]);
        error.hidden = !e.error || e.status === "stopped"; // the reason is said above
        error.lastElementChild.textContent = e.error ?? "";
        list(factList, facts(found), page);
        list(metricList, metrics(found), page);
        list(constantList, constants(found), page);
        metricList.parentElement.hidden = metricList.childElementCount === 0;
        constantPanel.hidden = constantList.childElementCount === 0;
        againPanel.hidden = found.retests.length === 0;
        sync(again, found.retests, ({ retest_id: name }) => name, (retest) => h("li", {}, runLink(page, retest.retest_id), badge(retest.status), h("b", {}, number(ownValue(retest), found.digits)), h("span", { class: "dim" }, `seed ${retest.seed}`)));
        fill(acts, [e.status, e.stopping], () => actions(found, page));
        draw();
        drawChange();
        readPeers();
      },
      failed(problem) {
        if (problem.status !== 404 || found !== null) return page.problem(problem.message, problem.hint);
        place.replaceChildren(h("section", { class: "empty", id: "unknown" }, h("h2", {}, problem.message), h("p", {}, problem.hint), h("p", {}, h("a", { href: page.to({ view: "runs" }) }, "All runs of this tag"))));
      },
      moved: () => found && drawChange(),
      end() {
        live?.end();
        log.end();
        drawn.end();
      },
    };
  },
};

function list(element, values, page) {
  sync(element, values, ([name]) => name, ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(value, page))));
}

function bestOf(page, { tag }) {
  return page.tags?.find(({ name }) => name === tag)?.best_experiment_id ?? null;
}

function cells({ e, row, gain, sigmas, metric, digits, isOpen }) {
  const value = row.value === null ? "—" : number(row.value, digits);
  const at = e.finished_at ?? e.started_at ?? e.queued_at ?? e.registered_at;
  const started = e.started_at && !["queued", "leased"].includes(e.status) ? Date.parse(e.started_at) : null;
  return [
    { name: isOpen ? "Now" : "Verdict", value: wordOf(row), verdict: row.verdict, more: ["first", "demoted"].includes(row.trust) ? "" : (row.trust ?? "") },
    isOpen ? { name: "Last report", value: e.last_metric === null ? "—" : number(e.last_metric, digits), more: e.last_progress === null ? "" : `${Math.round(e.last_progress * 100)} % done` }
      : { name: e.status === "stopped" ? "Last value" : metric ?? "Value", value, more: e.judged_val_bpb === null ? "" : "mean of all its runs" },
    { name: "Gain", value: gain === null ? "—" : signed(gain, { digits }).textContent,
      more: sigmas === null ? "" : `${inSigmas(sigmas)} sigmas` },
    { name: "Took", value: isOpen ? "—" : e.wall_seconds !== null ? span(e.wall_seconds) : started ? span((Date.parse(e.finished_at) - started) / 1000) : "—", more: e.gpu_id ?? e.gpu_type ?? "" },
    { name: isOpen ? "Since" : "Ended", at, more: e.agent ?? "" },
  ];
}

// The parts of its time as a bar, and in words.
function timeline({ timeline: phases, e }, page) {
  const now = labNow() / 1000;
  const parts = phases.map((phase) => ({ ...phase, seconds: Math.max(0, (phase.until ?? now) - phase.since) }));
  const words = (part) => `${part.phase === "queued" ? "waiting" : part.phase} ${span(part.seconds)}${part.until === null ? " so far" : ""}${part.attempt > 1 ? `, attempt ${part.attempt}` : ""}`;
  const bar = h("div", { class: "timeline", role: "img", "aria-label": parts.map(words).join("; ") });
  for (const part of parts) {
    const segment = h("span", { class: part.phase, title: words(part) });
    segment.style.flexGrow = 1 + 1000 * part.seconds; // a sum under 1 would not fill the bar
    bar.append(segment);
  }
  return [bar, h("ol", { class: "phases" }, h("li", { title: e.registered_at }, "registered ", age(e.registered_at), " ago"), parts.map((part) =>
    h("li", { class: part.phase, title: new Date(part.since * 1000).toLocaleString() }, part.retest_id ? [runLink(page, part.retest_id), " "] : null, words(part), part.status ? `: ${part.status}` : null)))];
}

// What an operator may do with it in its present state.
function actions({ e, isOpen, row }, page) {
  const on = (name, title, text, path, more = {}) => action(page, { name, title: `${title} ${e.id}?`, text, path, body: (given) => ({ experiment_id: e.id, ...given }), ...more });
  const settled = ["keep", "discard"].includes(e.status) && e.val_bpb !== null && e.retest_of === null;
  return [
    isOpen && !e.stopping ? on("Stop", "Stop", `${["leased", "running"].includes(e.status) ? "Its worker ends it within seconds, and its GPU is free for the next run. " : ""}Its value does not count.`, "/api/experiment/stop", { body: () => ({ experiment_id: e.id, reason: "stopped on the page" }) }) : null,
    settled ? on("Retest", "Run again", `Its code is trained once more on another seed. The value is evidence for ${e.id} and counts as no new experiment.`, "/api/experiment/retest", { verb: "Run again" }) : null,
    settled ? on("Retract", "Retract", `Its result${row.verdict === "keep" ? " and its keep" : ""} will count for nothing: best, noise, counters and branches become as if it had not been there. This cannot be undone.`, "/api/experiment/retract", { inputs: [{ name: "reason", label: "Why does it not count?" }] }) : null,
  ].filter(Boolean);
}
