// A swarm: what its workers run now, who leads, how they are divided, and what each of them is told.

import { PROGRAM, age, badge, counted, cut, h, number, signed, span, stampOf, sync } from "../dom.js";
import { facts, figure, nextSteps, panel } from "../parts.js";
import { call, get } from "../lab.js";
import { Table } from "../table.js";

const STATES = { active: "running", extended: "keep", stopped: "discard" }; // the three states of an active run, with the verdict whose mark each has
const MOST_WORKERS = 1000;
const JOIN = `${PROGRAM} join --url ${location.origin} --worker-id NAME --train-py train.py`;

export const swarm = {
  title: "Swarm",
  open(place, page) {
    const { tag } = page.address;
    const better = page.tag.direction === "maximize" ? 1 : -1; // a delta's sign turned into a gain's
    const query = `?${new URLSearchParams({ tag })}`;
    const figures = h("dl", { class: "figures" });
    const worker = h("section", { class: "panel", id: "worker", hidden: true });
    const [running, leading, divided] = ["Active runs", "Leaderboard", "Populations"].map((title) => panel(title));
    const parts = [figures, worker, running, leading, divided, h("p", { class: "dim" }, "Another worker joins: ", h("code", {}, JOIN))];
    place.append(...parts);
    const toRun = (id) => page.go({ view: "run", run: id, worker: null });
    const toWorker = (id) => page.go({ worker: id });
    const tables = {
      runs: new Table(running, { label: "active runs", key: ({ id }) => id, open: ({ id }) => toRun(id) }),
      leaders: new Table(leading, { label: "leaderboard", key: ({ worker_id: id }) => id, open: ({ worker_id: id }) => toWorker(id) }),
      populations: new Table(divided, { label: "populations", key: ({ population_id: id }) => id, opens: ({ hypothesis_id: id }) => Boolean(id), open: ({ hypothesis_id: id }) => page.go({ view: "beliefs", hypothesis: id, worker: null }) }),
    };
    for (const table of Object.values(tables)) table.show({ columns: [], rows: [], empty: "Reading." });
    let found = null;

    function draw() {
      if (found === null || found.dimensions.length === 0) return;
      const { health, stats, leaders, active, night } = found;
      const best = night.by_delta ? night.best : stats.best_delta; // the mean of its further runs, as on the overview
      const owner = night.by_delta ? page.runs.byId.get(night.best_experiment_id)?.worker : null;
      const { digits } = page.runs;
      const gain = (delta) => (delta === null ? "" : signed(better * delta, { digits }).textContent);
      sync(figures, [
        { name: "Best gain", value: gain(best) || "none yet", more: leaders.length ? `by ${owner ?? leaders[0].worker_id}, over its baseline` : "" },
        { name: "Experiments", value: health.experiments.toLocaleString("en"), more: `${stats.completed.toLocaleString("en")} to their end` },
        { name: "Workers", value: String(health.active_workers), more: "heard of in ten minutes" },
        { name: "Queue", value: counted(health.queue_depth, "config"), more: `${counted(active.length, "run")} active` },
        { name: "Stopped early", value: `${number(stats.kill_rate, 1)} %`, more: `${stats.killed} stopped, ${stats.extended} extended` },
        { name: "GPU time saved", value: span(stats.saved_gpu_seconds), more: "left of stopped runs" },
      ], ({ name }) => name, figure);
      const known = new Map(found.populations.map((one) => [one.population_id, one]));
      const purpose = ({ id, population }) => (id.includes(".") ? `repeat of ${id.split(".")[0]}` : [known.get(population)?.strategy, known.get(population)?.hypothesis_statement].filter(Boolean).join(": "));
      tables.runs.show({ rows: active.map((run) => ({ ...run, purpose: purpose(run), config: page.runs.byId.get(run.id.split(".")[0])?.description ?? "" })), digits, empty: "No run goes on.", columns: [
        { id: "run", title: "Run", width: 124, cell: ({ id }) => h("a", { href: page.to({ view: "run", run: id }) }, id) },
        { id: "state", title: "State", width: 96, cell: ({ state }) => badge(state, STATES[state]) },
        { id: "progress", title: "Progress", width: 72, cell: ({ progress }) => h("progress", { value: progress, max: Math.max(1, progress), title: `${Math.round(progress * 100)} %` }) },
        { id: "metric", title: page.tag.metric, width: 84, number: true, cell: ({ metric }) => number(metric, digits) },
        { id: "purpose", title: "For", wide: true, cell: (run) => cut(run.purpose) },
        { id: "setting", title: "Config", wide: true, cell: (run) => cut(run.config) },
        { id: "worker", title: "Worker", width: 150, cell: ({ worker_id: id }) => toldTo(id) },
      ] });
      tables.leaders.show({ rows: withConfigs(leaders), digits, empty: "No worker has a result yet.", columns: [
        { id: "rank", title: "#", width: 40, number: true, cell: ({ rank }) => String(rank) },
        { id: "worker", title: "Worker", width: 150, cell: ({ worker_id: id }) => toldTo(id) },
        { id: "gain", title: "Best gain", width: 104, number: true, cell: ({ best_delta_bpb: delta }) => gain(delta) },
        { id: "count", title: "Runs", width: 52, number: true, cell: ({ experiment_count: count }) => String(count) },
        { id: "gpu", title: "GPU", width: 150, cell: ({ gpu_type: gpu }) => cut(gpu) },
        { id: "config", title: "Best config", wide: true, cell: (one) => cut(one.config) },
      ] });
      const members = (id) => active.filter(({ population }) => population === id).map(({ worker_id: name }) => name).join(", ");
      tables.populations.show({ rows: found.populations.map((one) => ({ ...one, members: members(one.population_id) })), empty: "Every worker is in one population.", columns: [
        { id: "claim", title: "Hypothesis", wide: true, cell: (one) => h("a", { class: "cut", title: one.hypothesis_statement, href: page.to({ view: "beliefs", hypothesis: one.hypothesis_id }) }, one.hypothesis_statement || "none") },
        { id: "strategy", title: "Strategy", width: 112, cell: ({ strategy }) => strategy },
        { id: "posterior", title: "P", width: 56, number: true, cell: ({ posterior }) => number(posterior, 2) },
        { id: "count", title: "n", width: 52, number: true, cell: ({ n_experiments: count }) => number(count, 0) },
        { id: "worth", title: "Information", about: "worth of its next result, 0 to 1", width: 92, number: true, cell: ({ information_value: worth }) => number(worth, 2) },
        { id: "workers", title: "Workers", about: "its workers, of its target", width: 76, number: true, cell: (one) => `${one.assigned_workers} of ${one.target_workers}` },
        { id: "members", title: "Running now", wide: true, cell: (one) => cut(one.members) },
      ] });
    }

    function toldTo(id) {
      return h("a", { class: "cut", title: id, href: page.link({ worker: id }) }, id);
    }

    async function preview() {
      const { worker: id } = page.address;
      worker.hidden = !id;
      if (!id) return worker.replaceChildren();
      const header = h("header", {}, h("h2", {}, id), h("p", { class: "dim note" }, "what the swarm tells it between two runs"), h("a", { href: page.link({ worker: null }) }, "Close"));
      worker.replaceChildren(header, h("p", { class: "nothing" }, "Reading."));
      const [told, mine] = await Promise.all([call("/api/swarm/preview", { worker_id: id }).catch((problem) => ({ problem })), ownerOf(id)]);
      if (page.address.worker !== id) return;
      worker.replaceChildren(header, ...(told.problem ? [h("p", { class: "problem" }, [told.problem.message, told.problem.hint].filter(Boolean).join(": "))] : answer(told, mine)));
    }

    function answer(told, mine) {
      const { digits } = page.runs;
      const text = (value) => (value === null ? "" : String(value));
      return [
        facts([
          ["Hypothesis", told.hypothesis_statement], ["Strategy", told.population_strategy], ["Population", told.population_id],
          ["Budget of a run", span(told.budget_seconds)], ["Program", told.program_md ? told.program_digest : "its own, until the first is written"],
          ["Newest result", [age(stampOf(told.updated_at)), " ago"]], ["Baseline", mine && number(mine.baseline_bpb, digits)], ["Owner", mine?.contact],
        ]),
        h("div", { class: "columns roomy" },
          plain("dimensions", ["Dimension", "Importance", "Best known", "Frozen at"], told.dimensions.map((one) => [one.name, number(one.importance, 2), text(one.best_known_value), one.frozen ? text(one.frozen_value) : ""])),
          plain("best configs", ["Gain", "Config"], told.top_configs.map((one) => [signed(better * one.delta_bpb, { digits }).textContent, configText(one.config_delta)]))),
        told.program_md ? h("details", {}, h("summary", {}, "Its program.md"), h("pre", { class: "log", tabindex: "0" }, told.program_md)) : null,
        h("details", {}, h("summary", {}, "The answer as JSON"), h("pre", { class: "log", tabindex: "0" }, JSON.stringify(told, null, 2))),
      ].filter(Boolean);
    }

    // How an operator reaches the worker's owner.
    async function ownerOf(id) {
      if (!page.isOperator) return null;
      const { workers } = await get(`/api/swarm/workers${query}&limit=${MOST_WORKERS}`);
      return workers.find(({ worker_id: name }) => name === id) ?? null;
    }

    const stop = page.runs.listen(draw);
    preview();
    return {
      rest: 2000,
      every: 30000,
      touches: (event) => event.tag === tag && /^(experiment|run|worker|hypothesis|dimension|best|tag)\./.test(event.type),
      async read() {
        const [health, stats, active, leaders, { populations }, { dimensions }, night] = await Promise.all(
          [...["health", "runs/stats", "runs/active", "leaderboard", "populations"].map((path) => get(`/${path}${query}`)), call("/api/dimension/list", { tag }), call("/api/report/night", { tag, changes: false })]);
        return { health, stats, active, leaders, populations, dimensions, night };
      },
      show(answers) {
        found = answers;
        if (found.dimensions.length === 0) return place.replaceChildren(noSwarm(tag));
        if (!figures.isConnected) place.replaceChildren(...parts);
        draw();
      },
      moved() {
        draw();
        preview();
      },
      end() {
        stop();
        for (const table of Object.values(tables)) table.end();
      },
    };
  },
};

function noSwarm(tag) {
  return nextSteps(`${tag} is no swarm`,
    ["A swarm's workers vary constants of a train.py. Find those that may vary:", `${PROGRAM} dims scan train.py > dimensions.toml`],
    ["Let the swarm vary them:", `${PROGRAM} dims define --tag ${tag} dimensions.toml`],
    ["Have workers join:", JOIN]);
}

// The leaders with their configs as texts: what differs from the best one's comes first.
function withConfigs(leaders) {
  return leaders.map((one) => {
    const isShared = ([name, value]) => value === leaders[0].best_config_delta[name];
    const entries = Object.entries(one.best_config_delta).sort((a, b) => isShared(a) - isShared(b));
    return { ...one, config: configText(Object.fromEntries(entries)) };
  });
}

function configText(config) {
  return Object.entries(config).map(([name, value]) => `${name} = ${value}`).join(", ");
}

function plain(label, titles, rows) {
  return h("div", { class: "wide" }, h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", { title: cell }, cell)))))));
}
