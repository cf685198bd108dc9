// Constants and results: one panel that draws what varies between a tag's runs, in the way that the reader chooses.

import { axis, chart } from "./charts.js";
import { counted, digitsOf, h, number } from "./dom.js";
import { Fresh } from "./fresh.js";
import { call } from "./lab.js";
import { offer, panel } from "./parts.js";

const MOST_RUNS = 1000; // the newest
const MOST_AXES = 12;
const AXIS_PX = 80; // a narrow screen shows the most important constants
const WORST_SHARE = 0.05; // of the runs: they stand at the end of the axis
const REST_MS = 5000;
const WIDE = 100; // a constant that spans more has a logarithmic axis

// How each kind is drawn, and how many constants are chosen for it.
const KINDS = {
  parallel: { constants: 0, about: "drag along an axis to choose runs", option: parallel },
  slice: { constants: 1, about: "value against one constant", option: slice },
  contour: { constants: 2, about: "two constants; the fuller the colour, the better the value", option: (...given) => contour(...given, ({ result }, { ends, isLower }) => (isLower ? -1 : 1) * within(ends, result)) },
  rank: { constants: 2, about: "two constants; the fuller the colour, the better the rank", option: (...given) => contour(...given, ({ rank }) => rank) },
  distribution: { constants: 0, about: "share of the runs up to each value", option: distribution },
};

// The panel; answers { element, hear(event), draw(dimensions), end() }. `dimensions` are what a swarm declares of its constants.
// It is hidden while no constant varies.
export function constants(page) {
  const { tag } = page.address;
  const plot = h("div", { class: "plot" });
  const note = h("p", { class: "dim note" }, "Reading.");
  const pick = (name, label) => h("select", { "aria-label": label, change: ({ target }) => page.go({ [name]: target.value }, { replace: true }) });
  const [kinds, first, second] = [pick("kind", "kind of plot"), pick("first", "first constant"), pick("second", "second constant")];
  const element = panel("Constants", plot);
  element.id = "constants";
  element.hidden = true;
  element.firstChild.append(note, h("div", { class: "axes" }, kinds, first, second));
  const ended = new AbortController();
  let dimensions = [];
  let found = null;
  const drawn = chart(plot, (colours) => (found === null ? { series: [] } : found.option({ ...found, width: plot.clientWidth }, colours)), { on: { click: ({ data }) => data?.id && page.go({ view: "run", run: data.id, kind: null, first: null, second: null }) } });
  let answer = null;
  const fresh = new Fresh({ rest: REST_MS, read: () => call("/api/report/runs", { tag, limit: MOST_RUNS, constants: true }), show: (told) => ((answer = told), draw()) }, ended.signal);
  fresh.now();

  function draw(declared = dimensions) {
    dimensions = declared;
    if (answer === null) return;
    if (found !== null && found.option !== optionOf(page.address)) drawn.clear();
    found = varied(answer, dimensions);
    element.hidden = found.names.length === 0;
    const kind = kindOf(page.address);
    const { constants: count, about, option } = KINDS[kind];
    const [one, other] = chosenOf(found, page.address);
    offer(kinds, Object.keys(KINDS), kind);
    offer(first, found.names, one);
    offer(second, found.names, other);
    [first.hidden, second.hidden] = [count < 1, count < 2];
    Object.assign(found, { option, one, other });
    note.textContent = `${about}; ${counted(found.runs.length, "run")}${answer.total > MOST_RUNS ? `, the newest of ${answer.total.toLocaleString("en")}` : ""}`;
    drawn.say(`${kind} of ${[one, other].slice(0, count).join(", ") || "the runs"}: ${about}`);
    drawn.draw();
  }

  return {
    element,
    draw,
    hear: (event) => event.tag === tag && /^experiment\.(finished|retested)/.test(event.type) && fresh.soon(),
    end() {
      ended.abort();
      drawn.end();
    },
  };
}

function kindOf({ kind }) {
  return Object.hasOwn(KINDS, kind ?? "") ? kind : "parallel";
}

function optionOf(address) {
  return KINDS[kindOf(address)].option;
}

// The two constants that are drawn; without a choice, the second is the one that most runs set together with the first.
function chosenOf({ names, runs }, { first, second }) {
  const one = names.includes(first) ? first : names[0];
  const both = countOf(runs.filter(({ set }) => one in set));
  const others = names.filter((name) => name !== one).sort((a, b) => both(b) - both(a));
  return [one, others.includes(second) ? second : others[0] ?? one];
}

// How many of these runs set a constant.
function countOf(runs) {
  const counts = new Map();
  for (const { set } of runs) for (const name of Object.keys(set)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return (name) => counts.get(name) ?? 0;
}

// The runs with a value, oldest first, and the constants that vary between them: the most important first, then those that most runs set.
function varied(answer, dimensions) {
  const { constants: set, value, id, number: nth } = answer.runs;
  const isDelta = answer.metric === "delta_bpb";
  const sign = answer.direction === "maximize" ? 1 : -1;
  const runs = id.map((name, at) => ({ id: name, nth: nth[at], set: set[at] ?? {}, result: value[at] === null ? null : isDelta ? sign * value[at] : value[at] })).filter(({ result }) => result !== null).reverse();
  const isLower = !isDelta && sign < 0; // the lower value is the better one
  const sorted = runs.map(({ result }) => result).sort((one, other) => (isLower ? other - one : one - other)); // the worst first
  const ranks = new Map(sorted.map((result, at) => [result, at]));
  for (const run of runs) run.rank = ranks.get(run.result);
  const known = new Map(dimensions.map((one) => [one.name, one]));
  const valuesOf = new Map();
  for (const { set: own } of runs) {
    for (const [name, one] of Object.entries(own)) valuesOf.set(name, (valuesOf.get(name) ?? new Set()).add(one));
  }
  const importance = (name) => known.get(name)?.importance ?? 0;
  const count = countOf(runs);
  const names = [...valuesOf.keys()].filter((name) => valuesOf.get(name).size > 1 && (known.size === 0 || known.has(name))).sort((one, other) => importance(other) - importance(one) || count(other) - count(one));
  const [worst, best] = [sorted[Math.floor(WORST_SHARE * sorted.length)] ?? 0, sorted.at(-1) ?? 0];
  const scale = (name) => {
    const values = [...valuesOf.get(name)];
    if (known.get(name)?.categories || !values.every((one) => typeof one === "number")) return { type: "category", data: (known.get(name)?.categories ?? values).map(String) };
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const isLog = known.has(name) ? known.get(name).dtype === "float_log" : low > 0 && high / low > WIDE;
    return { type: isLog ? "log" : "value", scale: true };
  };
  return { runs, names, scale, isLower, ends: [Math.min(worst, best), Math.max(worst, best)], metric: isDelta ? "gain" : answer.metric, digits: digitsOf(answer.sigma) };
}

// A value of a constant as its axis takes it.
function at(set, name, scale) {
  if (set[name] === undefined) return "-";
  return scale.type === "category" ? String(set[name]) : set[name];
}

function within([low, high], value) {
  return Math.max(low, Math.min(high, value));
}

function told({ id, set, result }, { names, digits }) {
  return [`${id}  ${number(result, digits)}`, ...names.slice(0, MOST_AXES).filter((name) => set[name] !== undefined).map((name) => `${name} = ${set[name]}`)].map((line) => line.slice(0, 70)).join("\n");
}

function results({ ends, digits, metric }, colours) {
  return axis(colours, { min: ends[0], max: ends[1], name: metric, axisLabel: { color: colours.dim, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (value) => number(value, digits) } });
}

function across(found, name, colours) {
  return axis(colours, { ...found.scale(name), name, nameLocation: "middle", nameGap: 26, splitLine: { show: false } });
}

function scatter(found, colours, data, shade) {
  return {
    tooltip: { trigger: "item", formatter: ({ data: point }) => told(found.runs.find(({ id }) => id === point.id), found) },
    visualMap: { show: false, dimension: 2, min: shade[0], max: shade[1], inRange: { color: [colours.line, colours.accent] } },
    series: [{ type: "scatter", symbolSize: 9, itemStyle: { borderColor: colours.dim, borderWidth: 0.5 }, data }],
  };
}

function slice(found, colours) {
  const { runs, one, ends } = found;
  const scale = found.scale(one);
  const data = runs.filter(({ set }) => set[one] !== undefined).map(({ id, nth, set, result }) => ({ id, value: [at(set, one, scale), within(ends, result), nth] }));
  return { grid: { left: 76, right: 24, top: 28, bottom: 44 }, xAxis: across(found, one, colours), yAxis: results(found, colours), ...scatter(found, colours, data, [runs[0]?.nth ?? 0, runs.at(-1)?.nth ?? 1]) };
}

function contour(found, colours, shadeOf) {
  const { runs, one, other } = found;
  const [scale, otherScale] = [found.scale(one), found.scale(other)];
  const data = runs.filter(({ set }) => set[one] !== undefined && set[other] !== undefined)
    .sort((a, b) => a.rank - b.rank) // the best on top
    .map((run) => ({ id: run.id, value: [at(run.set, one, scale), at(run.set, other, otherScale), shadeOf(run, found)] }));
  const shades = data.map(({ value }) => value[2]);
  return { grid: { left: 84, right: 24, top: 28, bottom: 44 }, xAxis: across(found, one, colours), yAxis: axis(colours, { ...otherScale, name: other }), ...scatter(found, colours, data, [Math.min(...shades), Math.max(...shades)]) };
}

function distribution(found, colours) {
  const sorted = found.runs.toSorted((one, other) => one.result - other.result);
  const data = sorted.map(({ id, result }, nth) => ({ id, value: [result, (nth + 1) / sorted.length] }));
  const { min, max, axisLabel } = results(found, colours);
  return {
    grid: { left: 56, right: 24, top: 28, bottom: 44 },
    xAxis: axis(colours, { min, max, axisLabel, name: found.metric, nameLocation: "middle", nameGap: 26 }),
    yAxis: axis(colours, { min: 0, max: 1, axisLabel: { color: colours.dim, formatter: (share) => `${Math.round(share * 100)} %` } }),
    tooltip: { trigger: "axis", formatter: ([{ value }]) => `${Math.round(value[1] * 100)} % up to ${number(value[0], found.digits)}` },
    series: [{ type: "line", step: "end", symbol: "none", lineStyle: { color: colours.accent, width: 2 }, data }],
  };
}

// Each run is a line over the constants; better results are higher.
function parallel(found, colours) {
  const { runs, isLower, ends, metric, digits } = found;
  const names = found.names.slice(0, Math.max(2, Math.min(MOST_AXES, Math.floor(found.width / AXIS_PX) - 1)));
  const style = { nameTextStyle: { color: colours.text }, axisLine: { lineStyle: { color: colours.dim } }, axisLabel: { color: colours.dim, textBorderColor: colours.panel, textBorderWidth: 3 }, z: 3, nameTruncate: { maxWidth: (found.width - 130) / names.length - 8 } };
  const axes = names.map((name, dim) => ({ id: name, dim, name, ...found.scale(name), ...style })); // by its id, what a reader has brushed outlives the next drawing
  const last = { id: "its result", dim: names.length, name: metric, min: ends[0], max: ends[1], inverse: isLower, nameLocation: isLower ? "start" : "end", ...style, axisLabel: { ...style.axisLabel, showMinLabel: false, showMaxLabel: false, formatter: (value) => number(value, digits) } };
  return {
    parallel: { left: 60, right: 70, top: 40, bottom: 24, parallelAxisDefault: { realtime: true } },
    parallelAxis: [last, ...axes], // first, so that it stays there when another constant varies
    visualMap: { show: false, dimension: names.length, min: ends[0], max: ends[1], inRange: { color: isLower ? [colours.accent, colours.line] : [colours.line, colours.accent] } },
    tooltip: { formatter: ({ name }) => name },
    series: [{ type: "parallel", lineStyle: { width: 1, opacity: 0.6 }, inactiveOpacity: 0.04,
      data: runs.map(({ id, set, result }) => ({ id, name: id, value: [...names.map((name, nth) => at(set, name, axes[nth])), within(ends, result)] })) }],
  };
}
