// Every GPU and CPU slot: its work, its lease, its load now and in the last hours.

import { runLink } from "../describe.js";
import { PROGRAM, age, badge, counted, h, labNow, sync } from "../dom.js";
import { action } from "../actions.js";
import { axis, chart } from "../charts.js";
import { call, get } from "../lab.js";
import { commands, figure } from "../parts.js";

const HOURS = 6;
const MOST_CHARTS = 24; // further slots are shown without their history
const HISTORY_MS = 60000;
const MARKS = { training: "running", offline: "crash", unhealthy: "crash" };

export const gpus = {
  title: "GPUs",
  open(place, page) {
    const figures = h("dl", { class: "figures" });
    const list = h("div", { class: "columns", id: "slots" }, h("p", { class: "nothing" }, "Reading."));
    place.append(figures, list, commands(
      ["This machine:", `${PROGRAM} worker --repo PATH`],
      ["Another machine:", `${PROGRAM} worker --url ${location.origin} --token TOKEN --repo PATH`],
      ["A token for its owner:", `${PROGRAM} token issue NAME --role worker --enroll`]));
    const charts = new Map(); // by id: { element, drawn, history, readAt }

    async function histories(slots) {
      const now = performance.now();
      const due = slots.slice(0, MOST_CHARTS).filter(({ gpu_id: id }) => now - (charts.get(id)?.readAt ?? -Infinity) >= HISTORY_MS);
      return Promise.all(due.map(async ({ gpu_id: id }) => [id, await call("/api/gpu/history", { gpu_id: id, hours: HOURS }).catch(() => null)]));
    }

    function plotOf(id) {
      if (!charts.has(id)) {
        const found = { element: h("div", { class: "plot tiny" }), history: null, readAt: -Infinity };
        found.drawn = chart(found.element, (colours) => option(found.history, colours), { label: `use, memory and temperature of ${id} in the last ${HOURS} hours` });
        charts.set(id, found);
      }
      return charts.get(id);
    }

    return {
      every: 5000,
      touches: ({ type }) => type.startsWith("gpu."),
      async read() {
        const [pool, { swarm_workers: workers }] = await Promise.all([get("/api/pool/list"), get("/api/lab/status")]);
        const tag = page.tags?.find(({ name, branch }) => branch === `swarm/${name}`)?.name;
        pool.workers.sort((one, other) => one.gpu_id.localeCompare(other.gpu_id, "en", { numeric: true }));
        return { pool, swarm: { tag, workers }, read: await histories(pool.workers) };
      },
      show({ pool, swarm, read }) {
        sync(figures, cells(pool, swarm), ({ name }) => name, figure);
        const slots = pool.workers.map((gpu) => ({ ...facts(gpu), isOperator: page.isOperator }));
        sync(list, slots.length ? slots : [{ id: "", swarm }], ({ id }) => id, (gpu) => (gpu.id ? card(gpu, page) : none(swarm, page)));
        for (const [id, history] of read) Object.assign(plotOf(id), { history, readAt: performance.now() });
        for (const element of list.children) {
          const found = charts.get(element.dataset.key);
          if (found && !element.contains(found.element)) element.append(found.element); // a card was made anew
        }
        for (const [id] of read) charts.get(id).drawn.draw();
        for (const [id, { drawn }] of charts) if (!slots.some((gpu) => gpu.id === id)) drawn.end(charts.delete(id));
      },
      end: () => charts.forEach(({ drawn }) => drawn.end()),
    };
  },
};

function cells(pool, { workers }) {
  return [
    { name: "Training", value: `${pool.training} of ${pool.total - pool.offline}`, more: `${counted(pool.idle, "slot")} idle` },
    { name: "Draining", value: String(pool.draining), more: "" },
    { name: "Unhealthy", value: String(pool.unhealthy), more: "" },
    { name: "Offline", value: String(pool.offline), more: "" },
    { name: "Swarm workers", value: String(workers), more: workers ? "on other machines" : "" },
  ];
}

function facts(gpu) {
  const { gpu_id: id, gpu_name: name, status, holder, leased_at: since, sick, tripped, consecutive_crashes: crashes, owner, drained, health } = gpu;
  const { utilization_percent: used, temperature_c: degrees, memory_used_mb: memory, memory_total_mb: most } = health ?? {};
  return {
    id, status, holder, since, drained, crashes, used: rounded(used), degrees: rounded(degrees),
    name: name === "cpu" ? "CPU slot" : name,
    why: sick ?? tripped ?? (drained ? "drained by an operator" : null),
    agent: gpu.of_agent ? owner : null,
    memory: most ? [memory / 1024, most / 1024] : null,
  };
}

function rounded(value) {
  return value === undefined || value === null ? null : Math.round(value);
}

function card(gpu, page) {
  const { id, status, holder, since, used, degrees, memory } = gpu;
  const work = holder
    ? [runLink(page, holder), since ? [" for ", age(since)] : null].flat()
    : [h("span", { class: "dim" }, gpu.why ?? "no run")];
  const about = [gpu.name, gpu.agent ? `only for ${gpu.agent}` : null, gpu.crashes ? `${counted(gpu.crashes, "failed run")} in a row` : null];
  return h("section", { class: "panel slot" },
    h("header", {}, h("h2", { class: "cut", title: id }, id), badge(status, MARKS[status] ?? "discard"), h("span", { class: "note" }), draining(gpu, page)),
    h("p", {}, ...work), h("p", { class: "dim" }, about.filter(Boolean).join(" · ")),
    h("dl", { class: "loads" },
      load("Use", used, 100, used === null ? "" : `${used} %`),
      memory && load("Memory", memory[0], memory[1], `${memory[0].toFixed(1)} of ${memory[1].toFixed(0)} GB`),
      degrees === null ? null : load("Heat", degrees, 100, `${degrees} °C`)));
}

function load(name, value, max, text) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value === null ? "not measured" : [h("progress", { value, max, "aria-label": name }), text]));
}

function draining({ id, drained, holder, isOperator }, page) {
  if (!isOperator) return null;
  return drained
    ? action(page, { name: "Undo drain", title: `Use ${id} again?`, text: "Runs are lent to it again, and its crashes are forgotten.", path: "/api/pool/drain", body: () => ({ gpu_id: id, undo: true }) })
    : action(page, { name: "Drain", title: `Drain ${id}?`, text: `No further run is lent to it.${holder ? ` ${holder} may finish.` : ""}`, path: "/api/pool/drain", body: () => ({ gpu_id: id }) });
}

// A lab of a swarm needs no worker of its own: the swarm's workers are workers.
function none({ tag, workers }, page) {
  if (workers) {
    return h("p", { class: "nothing" }, `${counted(workers, "swarm worker")} ${workers === 1 ? "trains" : "train"} on machines of their owners: see the view `,
      h("a", { href: page.to({ tag, view: "swarm" }) }, "Swarm"), ". This lab has no GPU of its own, and needs none.");
  }
  return h("p", { class: "nothing" }, "No worker yet. A worker adds the GPUs of a machine, or a CPU slot:");
}

function option(history, colours) {
  const points = (values, scale = 1) => (history?.at ?? []).map((at, nth) => [at * 1000, values?.[nth] === null || values === undefined ? null : values[nth] * scale]);
  const line = (name, color, data, type = "solid") => ({ name, type: "line", symbol: "none", data, lineStyle: { color, width: 1.5, type }, itemStyle: { color } });
  const most = history?.memory_total_mb;
  const empty = history?.at?.length ? [] : [{ type: "text", left: "center", top: "middle", silent: true, style: { text: "no history yet", fill: colours.dim } }];
  return {
    grid: { left: 34, right: 20, top: 28, bottom: 22 },
    legend: { top: 0, left: 0, itemWidth: 16, itemHeight: 8, textStyle: { color: colours.dim, fontSize: 11 } },
    graphic: empty,
    xAxis: axis(colours, { type: "time", min: labNow() - HOURS * 3600000, max: labNow(), splitLine: { show: false } }),
    yAxis: axis(colours, { min: 0, max: 100, interval: 50 }),
    tooltip: { trigger: "axis", valueFormatter: (value) => (value === null || value === undefined ? "" : String(Math.round(value))) },
    series: [
      line("use %", colours.accent, points(history?.utilization_percent)),
      ...(most ? [line("memory %", colours.dim, points(history.memory_used_mb, 100 / most), "dashed")] : []),
      ...(history?.temperature_c?.some((value) => value !== null) ? [line("°C", colours.text, points(history.temperature_c), "dotted")] : []),
    ],
  };
}
