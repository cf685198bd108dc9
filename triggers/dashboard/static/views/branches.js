// The graph of a tag's experiments: a lane for each trace, keeps joined by a bold path, merges between lanes.

import { age, badge, counted, cut, h, number, sync } from "../dom.js";
import { VERDICTS, axis, chart, zooming } from "../charts.js";
import { call } from "../lab.js";
import { Table } from "../table.js";
import { figure, legend, noRunYet } from "../parts.js";
import { told } from "./overview.js";

const MOST_RUNS = 5000; // newest runs that are drawn
const MOST_LANES = 40;
const FIRST_SEEN = 200; // newest runs that the window shows at first
const LANE_PX = 40;
const DASHES = ["solid", "dashed", "dotted"];
const BELOW = { keep: 0, baseline: 0, discard: 0.26, running: 0.26, demoted: 0.38, crash: 0.38 }; // keeps on the lane, others under it

export const branches = {
  title: "Branches",
  open(place, page) {
    const figures = h("dl", { class: "figures" });
    const note = h("p", { class: "dim note", role: "status" });
    const plot = h("div", { class: "plot graph" });
    place.append(figures, h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Experiments"), note), plot,
      legend("a colour for each trace; bold: from keep to keep; ring: base of a trace; frame: merge; \u2248 near miss")));
    let traces = [];
    let isRead = false;
    let graph = graphOf([], []);
    let isPlaced = false; // whether the window of the axis was set: from then on it is the reader's
    const table = new Table(place, {
      label: `traces of ${page.address.tag}`,
      key: ({ trace_id: id }) => id,
      open: ({ trace_id: branch }) => page.go({ view: "runs", branch }),
    });
    const drawn = chart(plot, (colours) => {
      const found = option(graph, page.runs, colours);
      if (!isPlaced && graph.rows.length > 0) {
        isPlaced = true;
        found.dataZoom[0].startValue = graph.rows[Math.min(FIRST_SEEN, graph.rows.length) - 1].number;
      }
      return found;
    }, { on: { click: ({ data }) => data?.id && page.go({ view: "run", run: data.id }) } });
    const stop = page.runs.listen(draw);

    function draw() {
      const { runs } = page;
      graph = graphOf(runs.rows, traces);
      plot.style.height = `${Math.max(240, graph.lanes.length * LANE_PX + 110)}px`;
      note.replaceChildren(...[noteOn(graph, runs)].flat());
      drawn.say(`${counted(graph.rows.length, "run")} in ${counted(graph.lanes.length, "lane")}, ${counted(graph.merges, "merge")}`);
      drawn.draw();
      const keeps = runs.rows.filter(({ verdict }) => verdict === "keep").length;
      sync(figures, [
        { name: "Traces growing", value: String(traces.filter(({ status }) => status === "live").length || (runs.total ? 1 : 0)), more: traces.length ? `of ${counted(traces.length, "trace")}` : "one chain" },
        { name: "Kept", value: String(keeps), more: `of ${counted(runs.rows.length, "run")}` },
        { name: "Merges", value: String(graph.merges), more: "" },
        { name: "Near misses", value: String(runs.rows.filter((row) => row.near_miss).length), more: "" },
        { name: "Open selections", value: String(traces.reduce((sum, trace) => sum + trace.in_flight, 0)), more: "" },
      ], ({ name }) => name, figure);
      list();
    }

    function list() {
      table.show({ columns: columnsOf(page), rows: traces, digits: page.runs.digits,
        empty: isRead ? "No trace yet: each run changes the best one before it. A trace begins with a selection, in a tag whose policy traces.mode is multi." : "Reading." });
    }

    return {
      rest: 3000,
      every: 60000,
      touches: ({ tag, type }) => tag === page.address.tag && /^(experiment|selection|trace|best|strategy)\./.test(type),
      read: () => call("/api/trace/list", { tag: page.address.tag, limit: 200 }),
      show(answer) {
        [traces, isRead] = [answer.traces, true];
        draw();
      },
      end() {
        stop();
        drawn.end();
        table.end();
      },
    };
  },
};

function columnsOf(page) {
  const { digits, isMinimized, tag } = page.runs;
  const run = (id) => (id === null ? "" : h("a", { href: page.to({ view: "run", run: id }) }, id.slice(tag.length + 1)));
  return [
    { id: "trace", title: "Trace", width: 90, sort: (trace) => trace.number, cell: ({ trace_id: id }) => h("a", { href: page.to({ view: "runs", branch: id }) }, id.slice(tag.length + 1)) },
    { id: "status", title: "Status", width: 90, sort: (trace) => trace.status, cell: ({ status, reason }) => cut(status, { title: reason ?? status }) },
    { id: "best", title: "Best", width: 100, number: true, sort: (trace) => trace.best_score, cell: ({ best_score: best }) => number(best === null || isMinimized ? best : -best, digits) },
    { id: "kept", title: "Kept", width: 60, number: true, sort: (trace) => trace.kept, cell: (trace) => String(trace.kept) },
    { id: "length", title: "Runs", width: 60, number: true, sort: (trace) => trace.length, cell: (trace) => String(trace.length) },
    { id: "base", title: "Base", about: "its best keep: the code that the next run changes", width: 70, number: true, cell: (trace) => run(trace.base) },
    { id: "tip", title: "Tip", about: "its newest run", width: 70, number: true, cell: (trace) => run(trace.tip) },
    { id: "leases", title: "Leases", about: "selections that are open: an agent works on them", width: 70, number: true, sort: (trace) => trace.in_flight, cell: (trace) => String(trace.in_flight) },
    { id: "began", title: "Began", wide: true, cell: beginning },
    { id: "age", title: "Age", width: 70, number: true, sort: (trace) => trace.created_at, cell: (trace) => age(trace.created_at) },
  ];
}

function beginning({ kind, origin, merged_into: merged }) {
  return cut([origin === null ? kind.replace("_", " ") : `${kind.replace("_", " ")} at ${origin}`, merged === null ? null : `merged into ${merged}`].filter(Boolean).join("; "));
}

function noteOn({ rows, hidden }, runs) {
  if (runs.problem !== null) return runs.problem;
  if (rows.length === 0) return runs.complete ? noRunYet(runs.tag) : "reading";
  const shown = rows.length < runs.total ? `newest ${rows.length.toLocaleString("en")} of ${counted(runs.total, "run")}` : counted(runs.total, "run");
  return hidden ? `${shown}; ${counted(hidden, "older trace")} left out` : shown;
}

// What is drawn of the newest runs: places of runs, lines to parents, and the paths that join keeps.
function graphOf(all, traces) {
  const order = new Intl.Collator("en", { numeric: true }).compare;
  const newest = all.slice(0, MOST_RUNS);
  const names = [...new Set(newest.map(({ branch }) => branch ?? ""))];
  const lanes = names.slice(0, MOST_LANES).sort(order); // the newest runs come first, and so do their lanes
  const laneOf = new Map(lanes.map((name, nth) => [name, nth]));
  const rows = newest.filter(({ branch }) => laneOf.has(branch ?? ""));
  const at = new Map(rows.map((row) => [row.id, [row.number, laneOf.get(row.branch ?? "") + BELOW[row.verdict]]]));
  const keptAbove = new Map(); // the nearest keeps on the way to the root
  const [lines, path] = [[], []];
  for (const row of [...rows].reverse()) {
    const parents = row.parents.filter((id) => at.has(id));
    const kept = parents.flatMap((id) => (keptAbove.get(id)?.self ? [id] : keptAbove.get(id)?.above ?? []));
    keptAbove.set(row.id, { self: ["keep", "baseline"].includes(row.verdict), above: kept });
    lines.push(...parents.map((id) => ({ coords: [at.get(id), at.get(row.id)], branch: row.branch })));
    if (row.verdict === "keep") path.push(...kept.map((id) => ({ coords: [at.get(id), at.get(row.id)], branch: row.branch })));
  }
  const bases = new Set(traces.map(({ base }) => base));
  return { rows, at, lanes, lines, path, bases, hidden: names.length - lanes.length, merges: rows.filter(({ parents }) => parents.length > 1).length };
}

function option({ rows, at, lanes, lines, path, bases }, runs, colours) {
  const { digits, tag } = runs;
  const point = (row) => ({ value: at.get(row.id), id: row.id });
  const label = (text, position) => ({ show: true, position, color: colours.text, fontSize: 11, formatter: text });
  const ring = (name, symbol, symbolSize, found, more = {}) => ({ name, type: "scatter", silent: true, data: found.map(point), symbol, symbolSize, itemStyle: { color: "transparent", borderColor: colours.text, borderWidth: 1.5 }, labelLayout: { hideOverlap: true }, z: 3, ...more });
  const line = (name, data, style) => ({ name, type: "lines", coordinateSystem: "cartesian2d", silent: true, data: data.map(({ coords, branch }) => ({ coords, lineStyle: ofTrace(branch, colours) })), lineStyle: style, z: 1 });
  return {
    grid: { left: 76, right: 64, top: 8, bottom: 62 },
    xAxis: axis(colours, { minInterval: 1, min: "dataMin", max: "dataMax", splitLine: { show: false } }),
    yAxis: axis(colours, { inverse: true, min: -1, max: lanes.length, interval: 1, splitLine: { show: false }, axisLabel: { color: colours.dim, width: 64, overflow: "truncate", formatter: (nth) => laneName(lanes[nth], lanes.length, tag) } }),
    dataZoom: zooming(colours),
    tooltip: { trigger: "item", formatter: ({ data }) => told(runs.byId.get(data?.id), digits) },
    series: [
      line("parents", lines, { color: colours.discard, width: 1.5, opacity: 0.8 }),
      line("keeps", path, { color: colours.keep, width: 3.5, opacity: 0.9 }),
      ring("merges", "rect", 17, rows.filter(({ parents }) => parents.length > 1)),
      ring("near misses", "circle", 1, rows.filter((row) => row.near_miss), { label: label("\u2248", "bottom") }),
      ring("bases", "circle", 17, rows.filter(({ id }) => bases.has(id)), { label: label(({ data }) => number(runs.byId.get(data.id).value, digits), "top") }),
      ...Object.entries(VERDICTS).map(([verdict, { symbol, size, rotate = 0 }]) => ({
        name: verdict, type: "scatter", z: 2, symbol, symbolSize: size, symbolRotate: rotate, itemStyle: { color: colours[verdict] },
        data: rows.filter((row) => row.verdict === verdict).map(point),
      })),
    ],
  };
}

// The line of a trace: after the last colour, the first one comes again with another dash.
function ofTrace(branch, { traces }) {
  if (!branch) return undefined;
  const nth = Number(/\d+$/.exec(branch)) - 1;
  return { color: traces[nth % traces.length], type: DASHES[Math.floor(nth / traces.length) % DASHES.length] };
}

function laneName(branch, count, tag) {
  if (branch === undefined) return "";
  return branch === "" ? (count > 1 ? "no trace" : "one chain") : branch.slice(tag.length + 1);
}
