// What a swarm believes: its hypotheses, how each belief moved, and which constants matter.

import { PROGRAM, age, badge, counted, cut, h, number, signed, stampOf, sync } from "../dom.js";
import { facts, figure, nextSteps, panel } from "../parts.js";
import { axis, chart } from "../charts.js";
import { constants } from "../constants.js";
import { Table } from "../table.js";
import { action } from "../actions.js";
import { call, get } from "../lab.js";

// The status of a hypothesis, with the verdict whose colour and mark it has.
const STATUSES = { supported: "keep", active: "running", refuted: "crash", irrelevant: "discard" };
const MOST_DRAWN = 60; // hypotheses of the graph: the newest

export const beliefs = {
  title: "Beliefs",
  open(place, page) {
    const { tag } = page.address;
    const query = `?${new URLSearchParams({ tag })}`;
    const figures = h("dl", { class: "figures" });
    const mix = h("p", { class: "mix" });
    const words = h("p", { class: "dim lines" });
    const history = h("div", { class: "plot low" });
    const graph = h("div", { class: "plot" });
    const importance = h("div", { class: "plot" });
    const shares = panel("Importance", importance);
    const unmeasured = h("p", { class: "dim note" }, "not measured yet");
    shares.firstChild.append(unmeasured);
    const about = h("div", {});
    const [claims, course, evidence, dimensions] = [panel("Hypotheses", mix), panel("Belief over its evidence", history), panel("Evidence"), panel("Dimensions")];
    dimensions.classList.add("whole");
    const across = constants(page);
    course.firstChild.append(h("p", { class: "dim note" }, "full mark: a run won; band: 90 % interval"));
    const parts = [figures, h("div", { class: "columns roomy" }, claims, course), h("div", { class: "columns roomy" }, panel("Allocation and protocol", about), evidence),
      h("div", { class: "columns roomy" }, panel("Theory graph", graph, h("details", {}, h("summary", {}, "In words"), words)), shares), across.element, dimensions];
    place.append(...parts);
    const tables = {
      claims: new Table(claims, { label: "hypotheses", key: (one) => one.hypothesis_id, open: (one) => choose(one.hypothesis_id), rowClass: (one) => (one.chosen ? "chosen" : null) }),
      evidence: new Table(evidence, { label: "evidence", key: (one) => one.experiment_id, open: (one) => page.go({ view: "run", run: one.experiment_id, hypothesis: null }) }),
      dimensions: new Table(dimensions, { label: "dimensions", key: (one) => one.name }),
    };
    for (const table of Object.values(tables)) table.show({ columns: [], rows: [], empty: "Reading." });
    let found = null;
    const charts = [
      chart(history, (colours) => historyOption(found?.moved, colours), { on: { click: ({ data }) => data?.run && page.go({ view: "run", run: data.run, hypothesis: null }) } }),
      chart(graph, (colours) => graphOption(found?.graph, found?.chosen, colours), { on: { click: ({ dataType, data }) => dataType === "node" && choose(data.id) } }),
      chart(importance, (colours) => importanceOption(found?.dimensions ?? [], colours)),
    ];
    const stop = page.runs.listen(() => draw()); // its noise says how many digits a gain has

    function choose(id) {
      page.go({ hypothesis: id });
    }

    function draw() {
      if (found === null) return;
      const { chosen, populations, moved, hypotheses } = found;
      const { digits } = page.runs;
      const better = (delta) => (delta === null || delta === undefined ? "" : signed(-delta, { digits }).textContent);
      const withError = (mean, error) => (mean === null ? "" : `${better(mean)} ± ${number(error, digits)}`);
      const population = populations.find(({ hypothesis_id: id }) => id === chosen?.hypothesis_id);
      sync(figures, chosen ? [
        { name: "Belief", value: number(chosen.posterior_mean, 2), more: chosen.statement },
        { name: "90 % interval", value: chosen.credible_interval_90.map((end) => number(end, 2)).join(" to "), more: "share of its runs that win" },
        { name: "Evidence", value: counted(chosen.n_experiments, "run"), more: statusOf(chosen) },
        { name: "Gain over the baseline", value: better(chosen.effect_mu) || "not known", more: chosen.effect_sem === null ? "" : `± ${number(chosen.effect_sem, digits)}` },
        { name: "Workers", value: population ? `${population.assigned_workers} of ${population.target_workers}` : "none", more: population?.strategy ?? "" },
      ] : [], ({ name }) => name, figure);
      drawMix(hypotheses);
      tables.claims.show({ rows: hypotheses.map((one) => ({ ...one, chosen: one === chosen })), empty: "No hypothesis yet.", columns: [
        { id: "claim", title: "Claim", wide: true, cell: (one) => h("a", { class: "cut", title: one.statement, href: page.link({ hypothesis: one.hypothesis_id }) }, one.statement) },
        { id: "status", title: "Status", width: 96, cell: (one) => badge(statusOf(one), STATUSES[statusOf(one)]) },
        { id: "belief", title: "P", width: 50, number: true, cell: (one) => number(one.posterior_mean, 2) },
        { id: "interval", title: "90 % interval", width: 104, cell: (one) => interval(one) },
        { id: "count", title: "n", width: 46, number: true, cell: (one) => String(one.n_experiments) },
      ] });
      const steps = (moved?.steps ?? []).map(({ evidence: one, at }) => ({ ...one, at })).reverse();
      tables.evidence.show({ rows: steps, digits, empty: "No run bears on it yet.", columns: [
        { id: "run", title: "Run", width: 92, cell: (one) => h("a", { class: "cut", title: one.experiment_id, href: page.to({ view: "run", run: one.experiment_id }) }, one.experiment_id) },
        { id: "outcome", title: "Outcome", about: "a number: a stopped run counts by its rank", width: 78, cell: ({ outcome }) => (outcome > 0 && outcome < 1 ? number(outcome, 2) : outcomeOf(outcome)) },
        { id: "against", title: "Against", wide: true, cell: (one) => cut(one.reference_id ? `${one.against} ${one.reference_id}` : one.against) },
        { id: "contrast", title: "Over it", about: "gain over what it is compared with", width: 80, number: true, cell: ({ contrast }) => better(contrast) },
        { id: "delta", title: "Gain", about: "over its worker's baseline", width: 80, number: true, cell: ({ delta }) => better(delta) },
        { id: "finished", title: "Age", width: 68, number: true, cell: ({ at }) => (at === null ? "" : age(stampOf(at))) },
      ] });
      about.replaceChildren(chosen ? facts([
        ["Claim", chosen.statement], ["Source", chosen.source], ["Why", chosen.rationale], ["Part of", statementOf(chosen.parent_id)],
        ["Dimensions", chosen.dimensions.join(", ")], ["Only where", valuesText(chosen.config_constraint)],
        ["Importance", number(chosen.importance, 2)], ["Information value", number(population?.information_value, 2)], ["Strategy", population?.strategy], ["Population", population?.population_id],
        ["P above 0.60", chosen.support_probability.toFixed(2)], ["P between", chosen.rope_probability.toFixed(2)], ["P below 0.40", chosen.refute_probability.toFixed(2)],
        ["Gain over reference runs", withError(chosen.contrast_mu, chosen.contrast_sem)], ["Gain inside over outside", withError(chosen.inside_mu, chosen.inside_sem)],
        ["Test", chosen.test_spec && `${chosen.test_spec.type}, ${chosen.phase}`], ["Its terms", valuesText(chosen.test_spec ?? {}, ["type"])],
      ]) : h("p", { class: "nothing" }, "No hypothesis yet."));
      words.textContent = found.summary;
      tables.dimensions.show({ rows: found.dimensions, columns: dimensionColumns(page, tag) });
      across.draw(found.dimensions);
      unmeasured.hidden = found.dimensions.some(({ importance: share }) => share !== null);
      for (const each of charts) each.draw();
      charts[0].say(chosen ? `belief in ${chosen.statement} over its evidence, now ${number(chosen.posterior_mean, 2)}` : "");
      charts[1].say(`graph of ${counted(hypotheses.length, "hypothesis", "hypotheses")}`);
      charts[2].say("importance of each dimension");
    }

    function statementOf(id) {
      return id && (found.hypotheses.find(({ hypothesis_id: other }) => other === id)?.statement ?? id);
    }

    function drawMix(hypotheses) {
      const parts = Object.entries(STATUSES).map(([status, verdict]) => ({ status, verdict, count: hypotheses.filter((one) => statusOf(one) === status).length })).filter(({ count }) => count > 0);
      sync(mix, parts, ({ status }) => status, ({ status, verdict, count }) => {
        const part = h("span", {}, badge(`${count} ${status}`, verdict));
        part.style.flexGrow = String(count);
        return part;
      });
    }

    return {
      rest: 3000,
      every: 60000,
      hear: across.hear,
      touches: (event) => event.tag === tag && /^(experiment\.(finished|retested)|hypothesis|dimension|worker)/.test(event.type),
      async read() {
        const [{ hypotheses }, { populations }, { dimensions: all }, summary] = await Promise.all(
          [call("/api/hypothesis/list", { tag, archived: true }), get(`/populations${query}`), call("/api/dimension/list", { tag }), get(`/theory_graph/human${query}`)]);
        const chosen = hypotheses.find(({ hypothesis_id: id }) => id === page.address.hypothesis) ?? hypotheses[0] ?? null;
        const moved = chosen && (await call("/api/hypothesis/history", { tag, hypothesis_id: chosen.hypothesis_id }));
        const state = hypotheses.map((one) => one.hypothesis_id + statusOf(one)).join();
        const graphNow = found?.state === state ? found.graph : await get(`/theory_graph${query}`);
        return { hypotheses, populations, dimensions: all, summary: summary.derived_layer.summary_text, chosen, moved, state, graph: graphNow };
      },
      show(answers) {
        found = answers;
        if (found.hypotheses.length + found.dimensions.length === 0) return place.replaceChildren(noBeliefs(tag));
        if (!figures.isConnected) place.replaceChildren(...parts);
        draw();
      },
      moved: () => page.view.source.now(),
      end() {
        stop();
        for (const each of [across, ...charts, ...Object.values(tables)]) each.end();
      },
    };
  },
};

function noBeliefs(tag) {
  return nextSteps(`Nothing is believed of ${tag}`,
    ["Every dimension of a swarm gets a hypothesis. Find what a train.py lets it vary:", `${PROGRAM} dims scan train.py > dimensions.toml`],
    ["Define those dimensions:", `${PROGRAM} dims define --tag ${tag} dimensions.toml`],
    ["Or add a hypothesis of your own:", `${PROGRAM} call hypothesis::propose --tag ${tag} --help`]);
}

function statusOf({ settled, status }) {
  return settled ?? status;
}

function outcomeOf(outcome) {
  return outcome === null ? "tie" : outcome === 1 ? "won" : outcome === 0 ? "lost" : `stopped, ${number(outcome, 2)}`;
}

function valuesText(values, without = []) {
  return Object.entries(values).filter(([name]) => !without.includes(name)).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("; ");
}

// The interval as a bar from 0 to 1, with a mark at P.
function interval({ credible_interval_90: [low, high], posterior_mean: mean }) {
  const element = h("span", { class: "interval", title: `${number(low, 2)} to ${number(high, 2)}` }, h("i", {}), h("b", {}));
  const [bar, mark] = element.children;
  [bar.style.left, bar.style.width, mark.style.left] = [low, high - low, mean].map((share) => `${share * 100}%`);
  return element;
}

function dimensionColumns(page, tag) {
  const range = ({ categories, min, max }) => (categories ? categories.join(", ") : `${min} to ${max}`);
  const reason = { name: "reason", label: "Why", value: "" };
  const change = (one) => (one.frozen
    ? action(page, { name: "Unfreeze", title: `Unfreeze ${one.name}?`, text: "Configs vary it in its whole range again.", path: "/api/dimension/unfreeze", inputs: [reason], body: (given) => ({ tag, name: one.name, ...given }) })
    : action(page, { name: "Freeze", title: `Freeze ${one.name}?`, text: "Every config has this value from now on. It can be unfrozen.", path: "/api/dimension/freeze",
      inputs: [{ name: "value", label: "Value", options: one.categories?.map(String) ?? null }, reason], body: ({ value, reason: why }) => ({ tag, name: one.name, value: valueOf(one, value), reason: why }) }));
  return [
    { id: "name", title: "Dimension", wide: true, cell: (one) => cut(one.name) },
    { id: "range", title: "Range", wide: true, cell: (one) => cut(range(one)) },
    { id: "share", title: "Importance", width: 88, number: true, cell: (one) => number(one.importance, 2) },
    { id: "with", title: "Together with", wide: true, cell: (one) => cut(Object.entries(one.interacts_with ?? {}).map(([other, share]) => `${other} ${number(share, 2)}`).join(", ")) },
    { id: "state", title: "State", wide: true, cell: (one) => cut(one.frozen ? `frozen at ${one.frozen_value} by ${one.frozen_by}: ${one.frozen_reason}` : one.is_canary ? "on trial" : "varies") },
    ...(page.isOperator ? [{ id: "act", title: "", width: 96, cell: change }] : []),
  ];
}

// The value that was entered, in the dimension's own type.
function valueOf({ categories }, entered) {
  if (categories) return categories.find((one) => String(one) === entered);
  return entered.trim() === "" || Number.isNaN(Number(entered)) ? entered : Number(entered);
}

function historyOption(moved, colours) {
  const points = moved ? [{ after: moved.start }, ...moved.steps] : [];
  const line = (value, more) => ({ type: "line", symbol: "none", silent: true, data: points.map(({ after }) => [after.n, value(after)]), ...more });
  const said = ({ after, evidence: one }) => [`P ${number(after.mean, 2)}, 90 %: ${number(after.low, 2)} to ${number(after.high, 2)}`,
    one && `${one.experiment_id}: ${outcomeOf(one.outcome)} against ${one.against}`].filter(Boolean).join("\n");
  return {
    grid: { left: 40, right: 18, top: 12, bottom: 30 },
    xAxis: axis(colours, { minInterval: 1, min: "dataMin", max: "dataMax", name: "n", nameGap: 8 }),
    yAxis: axis(colours, { min: 0, max: 1, interval: 0.2, axisLabel: { color: colours.dim, formatter: (value) => value.toFixed(1) } }),
    tooltip: { trigger: "item", formatter: ({ data }) => data?.said ?? "" },
    series: [
      line(({ low }) => low, { stack: "band", lineStyle: { opacity: 0 } }),
      line(({ low, high }) => high - low, { stack: "band", lineStyle: { opacity: 0 }, areaStyle: { color: colours.line, opacity: 0.7 } }),
      { type: "line", lineStyle: { color: colours.text, width: 2 }, symbolSize: 8, markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colours.dim, type: "dashed" }, data: [{ yAxis: 0.4 }, { yAxis: 0.6 }] },
        data: points.map((point) => ({ value: [point.after.n, point.after.mean], run: point.evidence?.experiment_id, said: said(point),
          symbol: "circle", itemStyle: { color: point.evidence?.outcome === 1 ? colours.text : colours.panel, borderColor: colours.text, borderWidth: 1.5 } })) },
    ],
  };
}

// Claims one under the other, parts to the right of the whole, with an arc for each relation.
function graphOption(graph, chosen, colours) {
  const nodes = (graph?.nodes ?? []).slice(-MOST_DRAWN);
  const known = new Map(nodes.map((one) => [one.id, one]));
  const depth = (one, most = 8) => (known.has(one.parent_id) && most > 0 ? 1 + depth(known.get(one.parent_id), most - 1) : 0);
  return {
    grid: { left: 70, right: 8, top: 12, bottom: 12 },
    xAxis: { type: "value", show: false, min: 0, max: 6 },
    yAxis: { type: "value", show: false, inverse: true, min: 0, max: Math.max(1, nodes.length - 1) },
    tooltip: { formatter: ({ dataType, data }) => (dataType === "node" ? data.said : data.type.replaceAll("_", " ")) },
    series: [{
      type: "graph", coordinateSystem: "cartesian2d", edgeSymbol: ["none", "arrow"], edgeSymbolSize: 7, labelLayout: { hideOverlap: true },
      label: { show: true, position: "right", color: colours.text, overflow: "truncate", width: 400, formatter: ({ data }) => data.text },
      data: nodes.map((one, nth) => ({ id: one.id, value: [depth(one), nth], symbolSize: Math.min(22, 8 + 2 * Math.sqrt(one.n_experiments)), text: one.statement.slice(0, 120),
        said: `${one.statement.slice(0, 200)}\nP ${number(one.posterior, 2)}, n ${one.n_experiments}, ${statusOf(one)}`,
        itemStyle: { color: colours[STATUSES[statusOf(one)]] ?? colours.dim, borderColor: colours.text, borderWidth: one.id === chosen?.hypothesis_id ? 2 : 0 } })),
      links: (graph?.edges ?? []).filter(({ from, to }) => known.has(from) && known.has(to)).map(({ type, from, to }) => ({ source: from, target: to, type,
        symbol: type === "linked" ? ["none", "none"] : ["none", "arrow"], lineStyle: { color: colours.dim, type: type === "linked" ? "dashed" : "solid", curveness: nodes.indexOf(known.get(from)) < nodes.indexOf(known.get(to)) ? -0.35 : 0.35 } })),
    }],
  };
}

function importanceOption(dimensions, colours) {
  const shown = [...dimensions].sort((one, other) => (one.importance ?? 0) - (other.importance ?? 0));
  const bars = (name, value, color) => ({ name, type: "bar", stack: "share", barMaxWidth: 20, itemStyle: { color }, data: shown.map(value) });
  return {
    grid: { left: 8, right: 24, top: 30, bottom: 26, containLabel: true },
    legend: { top: 0, left: 0, textStyle: { color: colours.dim } },
    tooltip: { trigger: "item", formatter: ({ name, seriesName, value }) => `${name}, ${seriesName}: ${number(value, 2)}` },
    xAxis: axis(colours, { min: 0 }),
    yAxis: axis(colours, { type: "category", data: shown.map(({ name }) => name), axisLabel: { color: colours.text, width: 130, overflow: "truncate" } }),
    series: [bars("alone", ({ importance }) => importance, colours.dim), bars("only with others", ({ interaction }) => interaction, colours.line)],
  };
}
