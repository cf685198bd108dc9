// A tag at a glance: its best, gain and pace, and every run in one plot.

import { counted, digitsOf, h, local, number, signed, stampOf, sync } from "../dom.js";
import { figure, legend, noRunYet, panel } from "../parts.js";
import { HALF_A_TIME, VERDICTS, apart, axis, chart, zooming } from "../charts.js";
import { constants } from "../constants.js";
import { action } from "../actions.js";
import { call, get } from "../lab.js";
import { policyAction } from "../policy.js";
import { FILTERS, isFiltered, matching, wordOf } from "../runs.js";
import { timeline } from "../timeline.js";

const STRIP = ["crash", "running"]; // these have no value: they stand on a strip under the plot
const [FEW, FAR] = [10, 10]; // of a few runs, one is left out of sight that is so many times as far from the best as the next
const VALUED = ["discard", "demoted", "baseline", "keep"]; // the last on top

export const overview = {
  title: "Overview",
  open(place, page) {
    const figures = h("dl", { class: "figures" });
    const most = h("p", { class: "headline" });
    const holds = h("p", { class: "dim", id: "holds" });
    const distilled = h("p", { class: "dim", id: "distilled" });
    const note = h("p", { class: "dim note", role: "status" });
    const plot = h("div", { class: "plot" });
    const acts = h("div", { class: "acts" });
    const axes = h("div", { class: "axes" }, choice("plot", ["value", "timeline"]), choice("x", ["number", "time"]), choice("y", ["linear", "log"]), choice("show", ["best", "all"]),
      h("a", { href: `/api/report/progress.png?${new URLSearchParams({ tag: page.address.tag })}` }, "PNG"));
    const filter = h("p", { class: "dim", id: "filter", hidden: true });
    const marks = legend("line: the best; band: two sigma of noise; dots: retests");
    const runs = panel("Runs", filter, plot, marks);
    runs.firstChild.append(note, axes);
    const varied = constants(page);
    place.append(figures, most, holds, distilled, runs, acts, varied.element);

    const drawn = chart(plot, (colours, zoomed) => (page.address.plot === "timeline"
      ? timeline(drawing(page.runs, page.address).rows, (id) => told(page.runs.byId.get(id), page.runs.digits), colours)
      : option(page.runs, page.address, colours, zoomed)), {
      on: { click: ({ data }) => data?.id && page.go({ view: "run", run: data.id }), datazoom: () => drawn.draw() },
    });
    const stop = page.runs.listen(() => {
      note.replaceChildren(...[noteOn(page.runs, page.address)].flat());
      drawn.say(`${page.address.tag}: ${counted(page.runs.total, "run")}`);
      drawn.draw();
    });
    let kind = page.address.plot;
    mark();

    function choice(name, values) {
      return h("span", { class: "choice", "data-name": name }, values.map((value) => h("button", { type: "button", value, click: () => page.go({ [name]: value === values[0] ? null : value }, { replace: true }) }, value)));
    }

    function mark() {
      for (const group of axes.querySelectorAll(".choice")) {
        const buttons = [...group.children];
        const chosen = page.address[group.dataset.name] ?? buttons[0].value;
        for (const button of buttons) button.setAttribute("aria-pressed", String(button.value === chosen));
      }
      for (const element of [marks.lastChild, ...["x", "y", "show"].map((name) => axes.querySelector(`[data-name=${name}]`))]) element.hidden = page.address.plot === "timeline";
      note.replaceChildren(...[noteOn(page.runs, page.address)].flat());
      const { address } = page;
      const chosen = ["q", ...FILTERS].filter((name) => address[name]);
      filter.hidden = chosen.length === 0;
      filter.replaceChildren(`Filter: ${chosen.map((name) => (name === "q" ? address.q : `${name} ${address[name]}`)).join(", ")}. `,
        h("a", { href: page.link({ view: "runs" }) }, "Table"), " \u00b7 ", h("a", { href: page.link(Object.fromEntries(chosen.map((name) => [name, null]))) }, "All runs"));
    }

    return {
      rest: 3000,
      every: 60000,
      touches: (event) => event.tag === page.address.tag && /^(distil|experiment\.(finished|retested|demoted|confirmed|retracted)|best|tag|strategy)/.test(event.type),
      async read() {
        const { tag } = page.address;
        const [night, summary, status] = await Promise.all([call("/api/report/night", { tag, changes: false }), call("/api/report/summary", { tag }), get("/api/lab/status")]);
        return { night, summary, isPaused: status.paused_tags.includes(tag) };
      },
      show({ night, summary, isPaused }) {
        sync(figures, cells(night, summary, page), ({ name }) => name, (cell) => figure(cell));
        sync(most, biggest(night), ({ experiment_id: id }) => id, (step) => h("span", {}, "What mattered most: ", h("a", { href: page.to({ view: "run", run: step.experiment_id }) }, step.description),
          " (", signed(step.gain, { digits: digitsOf(night.sigma), isKept: true }), ")"));
        holds.textContent = night.holds_said;
        distilled.textContent = inWords(night.distilled);
        if (acts.dataset.state === String(isPaused)) return;
        acts.dataset.state = String(isPaused);
        const buttons = [pausing(page, night.tag, isPaused), policyAction(page, night.tag)].filter(Boolean);
        acts.replaceChildren(...buttons);
      },
      hear: varied.hear,
      moved() {
        mark();
        if (kind !== page.address.plot) drawn.clear();
        kind = page.address.plot;
        drawn.draw();
        varied.draw();
      },
      end() {
        stop();
        varied.end();
        drawn.end();
      },
    };
  },
};

function cells(night, summary, page) {
  const { stats, noise, false_keeps_at_least: luck } = summary;
  const digits = digitsOf(noise?.sigma);
  const runs = night.further_runs ? `mean of ${counted(night.further_runs, "retest")}` : "one run";
  return [
    { name: `Best ${night.metric}`, value: night.best === null ? "none yet" : number(night.best, digits), more: night.best === null ? "" : runs,
      href: night.best_experiment_id ? page.to({ view: "run", run: night.best_experiment_id }) : null },
    { name: "Gain", value: night.gain === null ? "none yet" : `${night.gain > 0 ? "+" : ""}${number(night.gain, digits)}`,
      more: night.gain === null ? "" : `${number(night.first, digits)} to ${number(night.last, digits)}` },
    { name: "Runs an hour", value: night.runs_an_hour === null ? "—" : number(night.runs_an_hour, night.runs_an_hour < 10 ? 1 : 0),
      more: `${counted(night.ideas, "idea")}, ${counted(night.kept, "keep")}` },
    { name: "GPU hours", value: number(night.gpu_hours, 2) },
    { name: "Last keep", at: night.last_keep_at, value: "none yet", more: night.demoted ? `${counted(night.demoted, "lucky win")} caught` : "" },
    { name: "Noise", value: noise === null ? "—" : number(noise.sigma, digits), more: luck === null ? "" : `luck: ≥ ${Math.round(luck * 100)} % of keeps` },
    { name: "Now", value: counted(stats.running, "run"), more: [stats.queued ? `${stats.queued} waiting` : null, stats.crashed ? counted(stats.crashed, "crash", "crashes") : null].filter(Boolean).join(", ") },
  ];
}

// The keep with the largest gain in the chain to the best, if one has a gain.
function biggest({ chain }) {
  return chain.filter(({ gain }) => gain > 0).sort((one, other) => other.gain - one.gain).slice(0, 1);
}

// Which changes of a chain of keeps still matter.
function inWords(one) {
  if (!one) return "";
  const stay = one.changes.filter(({ state }) => state !== "dropped").length;
  return one.state === "done"
    ? `Distilled: ${stay} of ${counted(one.changes.length, "change")} matter (${one.smallest}), ${counted(one.parts.length, "independent change")}.`
    : `Distilling in ${one.into}: ${one.state}. ${one.reason}`;
}

function pausing(page, tag, paused) {
  return paused
    ? action(page, { name: "Resume", title: `Resume ${tag}?`, text: "Its waiting runs get their places in the queue back.", path: "/api/tag/unpause", body: () => ({ tag }) })
    : action(page, { name: "Pause", title: `Pause ${tag}?`, text: "No further run of this tag starts. Running ones finish.", path: "/api/tag/pause", body: () => ({ tag }) });
}

function noteOn(runs, address) {
  if (runs.problem !== null) return runs.problem;
  if (runs.rows.length === 0) return runs.complete ? noRunYet(address.tag) : "reading";
  const { beyond, rows } = drawing(runs, address);
  const some = runs.complete ? rows.length : runs.rows.length;
  const read = some === runs.total ? counted(runs.total, "run") : `${some.toLocaleString("en")} of ${counted(runs.total, "run")}${runs.complete ? "" : " read"}`;
  return beyond && address.show !== "all" && address.plot !== "timeline" ? `${read}, ${beyond.toLocaleString("en")} beyond the axis` : read;
}

const drawings = new WeakMap();

// What the plot needs of the runs that the address filters, made once for each state of them. The best is that of all.
function drawing(runs, address) {
  const filter = JSON.stringify(["q", "x", ...FILTERS].map((name) => address[name]));
  const known = drawings.get(runs);
  if (known?.version === runs.version && known.filter === filter) return known;
  const rows = isFiltered(address) ? runs.rows.filter(matching(address)) : runs.rows;
  const of = { keep: [], discard: [], demoted: [], crash: [], running: [], baseline: [] };
  for (const row of rows) if (row.value !== null || STRIP.includes(row.verdict)) of[row.verdict].push(row);
  const values = VALUED.flatMap((verdict) => of[verdict]).map(({ value }) => value).sort((one, other) => one - other);
  const place = address.x === "time" ? (row) => (row.finished_at ?? row.registered_at) * 1000 : (row) => row.number;
  const keeps = runs.rows.filter(({ verdict, value }) => ["keep", "baseline"].includes(verdict) && value !== null);
  const line = bestLine(keeps.sort((one, other) => place(one) - place(other)), runs.isMinimized);
  const usual = usualRange(values, line, runs.isMinimized);
  const beyond = values.filter((value) => value < usual[0] || value > usual[1]).length;
  const found = { version: runs.version, filter, place, rows, of, line, values, usual, whole: padded(values[0], values.at(-1)), beyond };
  drawings.set(runs, found);
  return found;
}

// The ends of the axis that show the best line whole, and nine of ten runs, or of a few all but the far ones: an outlier takes no room.
function usualRange(values, line, isMinimized) {
  const sorted = isMinimized ? values : values.toReversed();
  const far = (nth) => Math.abs(sorted[nth] - sorted[0]);
  let last = values.length < FEW ? values.length - 1 : Math.round(0.9 * (values.length - 1));
  while (values.length < FEW && last > 1 && far(last - 1) > 0 && far(last) > FAR * far(last - 1)) last -= 1;
  const ends = [sorted[0], sorted[last], line[0]?.[1]].filter((value) => value !== undefined);
  return ends.length > 0 ? padded(Math.min(...ends), Math.max(...ends)) : padded();
}

function padded(low = 0, high = 1) {
  const pad = (high - low) * 0.05 || Math.abs(high) * 0.01 || 1;
  return [low - pad, high + pad];
}

// Where the best changed, as [row, value]; the oldest keep comes first.
function bestLine(keeps, isMinimized) {
  let best = null;
  const found = [];
  for (const row of keeps) {
    if (best !== null && (isMinimized ? row.value >= best : row.value <= best)) continue;
    best = row.value;
    found.push([row, best]);
  }
  return found;
}

function option(runs, address, colours, zoomed) {
  const { x, y, show } = address;
  const { rows, sigma, digits } = runs;
  const { place, of, line, values, usual, whole } = drawing(runs, address);
  const range = show === "all" ? whole : usual;
  const [first, last] = rows.length ? [place(rows.at(-1)), place(rows[0])] : [0, 1];
  const sight = zoomed.map((share) => first + share * (last - first));
  const path = line.map(([row, value]) => [place(row), value]);
  if (path.length > 0) path.push([last, line.at(-1)[1]]);
  const marks = (verdict, height, ends, axes = {}) => ({
    name: verdict, type: "scatter", itemStyle: { color: colours[verdict] }, symbol: VERDICTS[verdict].symbol, symbolSize: VERDICTS[verdict].size,
    symbolRotate: VERDICTS[verdict].rotate ?? 0, ...axes,
    data: apart(of[verdict].map((row) => ({ value: [place(row), height(row)], id: row.id })), sight, ends),
  });
  const edge = { type: "line", step: "end", stack: "band", stackStrategy: "all", silent: true, symbol: "none", lineStyle: { opacity: 0 } };
  const band = sigma === null ? [] : [
    { ...edge, data: path.map(([at, value]) => [at, value - 2 * sigma]) },
    { ...edge, areaStyle: { color: colours.band, opacity: 1 }, data: path.map(([at]) => [at, 4 * sigma]) },
  ];
  const across = { ...(x === "time" ? { type: "time" } : { minInterval: 1 }), min: first, max: last > first ? last : first + 1, axisLabel: { show: rows.length > 0, color: colours.dim, hideOverlap: true } };
  const isLog = y === "log" && range[1] > 0;
  const low = isLog && range[0] <= 0 ? {} : { min: range[0] };
  return {
    grid: [{ left: 76, right: HALF_A_TIME, top: 12, bottom: 84 }, { left: 76, right: HALF_A_TIME, height: 14, bottom: 42 }],
    xAxis: [axis(colours, across), axis(colours, { ...across, gridIndex: 1, show: false })],
    yAxis: [
      axis(colours, { type: isLog ? "log" : "value", ...low, max: range[1], axisLabel: { show: values.length > 0, color: colours.dim, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (value) => number(value, digits) } }),
      axis(colours, { gridIndex: 1, show: false, min: 0, max: 1 }),
    ],
    dataZoom: zooming(colours, { xAxisIndex: [0, 1] }),
    tooltip: { trigger: "item", formatter: ({ data }) => told(runs.byId.get(data?.id), digits) },
    series: [
      ...band,
      { name: "best", type: "line", step: "end", data: path, symbol: "none", silent: true, lineStyle: { color: colours.keep, width: 2 } },
      { name: "retest", type: "scatter", symbolSize: 4, itemStyle: { color: colours.text }, data: apart(rows.flatMap((row) => row.retests.filter((value) => value !== null).map((value) => ({ value: [place(row), value], id: row.id }))), sight, range) },
      ...VALUED.map((verdict) => marks(verdict, ({ value }) => value, range)),
      ...STRIP.map((verdict) => marks(verdict, () => 0.5, [0, 1], { xAxisIndex: 1, yAxisIndex: 1 })),
    ],
  };
}

export function told(row, digits) {
  if (!row) return "";
  const lines = [
    `${row.id}  ${wordOf(row)}`,
    row.value === null ? null : `${number(row.value, digits)}${row.gain === null ? "" : `  (${row.gain > 0 ? "+" : ""}${number(row.gain, digits)})`}`,
    row.description || row.hypothesis,
    row.agent ?? row.worker,
    row.finished_at ? local(stampOf(row.finished_at)) : null,
  ];
  return lines.filter(Boolean).map((line) => (line.length > 70 ? `${line.slice(0, 69)}…` : line)).join("\n");
}
