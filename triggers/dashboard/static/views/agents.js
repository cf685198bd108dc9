// Who works on a tag: the agents at work now, and what each agent has found and used.

import { PROGRAM, age, badge, counted, cut, h, local, number, signed, stampOf, sync } from "../dom.js";
import { call, get } from "../lab.js";
import { Table } from "../table.js";
import { commands, figure, noRunYet } from "../parts.js";

export const agents = {
  title: "Agents",
  open(place, page) {
    const figures = h("dl", { class: "figures" });
    const working = h("section", { class: "panel", id: "working", hidden: true }, h("header", {}, h("h2", {}, "At work")), h("ul", { class: "listing" }));
    place.append(figures, working);
    let found = [];
    const table = new Table(place, {
      label: `agents of ${page.address.tag}`,
      key: ({ agent }) => agent ?? "",
      open: ({ agent }) => page.go({ view: "runs", agent }),
      opens: ({ agent }) => agent !== null,
    });
    const { tag: name } = page.address;
    place.append(commands(
      [["Another agent, which gets ", h("a", { href: `/program.md?${new URLSearchParams({ tag: name })}` }, "program.md"), ":"], `${PROGRAM} agent --tag ${name} -- claude -p`],
      ["Somebody else's, in a lab with tokens:", `${PROGRAM} token issue NAME --role agent --tag ${name}`]));
    const stop = page.runs.listen(() => list()); // its noise says how many digits a gain has

    function list(empty) {
      table.show({ columns: columnsOf(page), rows: found, empty, digits: page.runs.digits });
    }

    list("Reading.");
    return {
      every: 15000,
      rest: 3000,
      touches: ({ tag, type }) => tag === page.address.tag && /^(experiment\.(registered|finished|demoted|promoted|retracted)|agent)/.test(type),
      async read() {
        const { tag } = page.address;
        const [account, status] = await Promise.all([call("/api/report/agents", { tag }), get("/api/lab/status")]);
        return { account, now: status.agents.filter((agent) => agent.tag === tag) };
      },
      show({ account, now }) {
        found = account.agents;
        sync(figures, cells(account), ({ name }) => name, figure);
        working.hidden = now.length === 0;
        sync(working.querySelector("ul"), now, ({ agent }) => agent, atWork);
        list(noRunYet(account.tag));
      },
      end() {
        stop();
        table.end();
      },
    };
  },
};

function cells({ agents: found, runs }) {
  const sum = (name) => found.reduce((total, agent) => total + agent[name], 0);
  return [
    { name: "Ideas", value: sum("ideas").toLocaleString("en"), more: `by ${counted(found.length, "agent")}` },
    { name: "Keeps", value: String(sum("keeps")), more: `of ${counted(runs, "finished run")}` },
    { name: "Lucky wins", value: String(sum("demoted")), more: "demoted" },
    { name: "Crashes", value: String(sum("crashes")), more: "" },
    { name: "GPU hours", value: number(sum("gpu_hours"), 2), more: "" },
    { name: "Open claims", value: String(sum("open_claims")), more: "not measured" },
  ];
}

const STATES = { working: "running", starting: "running" };

function atWork({ agent, state, tokens, cost_usd: cost, experiments, starts, limit, until }) {
  const facts = [
    counted(experiments, "experiment"),
    counted(starts, "start"),
    tokens === null ? null : `${tokens.toLocaleString("en")} tokens`,
    cost === null ? null : `${cost.toFixed(2)} USD`,
  ].filter(Boolean).join(" · ");
  const again = until ? [" · starts again ", age(until), `: ${limit}`] : [];
  const title = until ? `${facts} · starts again at ${local(until)}: ${limit}` : facts;
  return h("li", {}, h("b", {}, cut(agent)), badge(state, STATES[state] ?? "discard"), h("span", { class: "cut dim", tabindex: "0", title }, facts, ...again));
}

function columnsOf(page) {
  const { digits } = page.runs;
  const count = (id, title, about = title) => ({ id, title, about, width: 72, number: true, sort: (row) => row[id], cell: (row) => (row[id] ? row[id].toLocaleString("en") : "\u2014") });
  return [
    { id: "who", title: "Agent", wide: true, sort: (row) => row.agent ?? "", cell: ({ agent }) => (agent === null ? "no name" : h("a", { class: "cut", href: page.to({ view: "runs", agent }), title: agent }, agent)) },
    count("ideas", "Ideas", "finished runs, without baselines and retests"),
    count("keeps", "Keeps", "ideas that are kept now"),
    count("demoted", "Lucky", "keeps that further runs did not confirm"),
    count("crashes", "Crashes"),
    { id: "best_gain", title: "Best gain", width: 104, number: true, sort: (row) => row.best_gain, cell: (row) => signed(row.best_gain, { digits, isKept: true }) },
    { id: "total_gain", title: "Total gain", about: "sum of the gains of its keeps", width: 104, number: true, sort: (row) => row.total_gain, cell: (row) => signed(row.total_gain, { digits, isKept: row.keeps > 0 }) },
    { id: "gpu_hours", title: "GPU hours", width: 84, number: true, sort: (row) => row.gpu_hours, cell: (row) => number(row.gpu_hours, 2) },
    count("open_runs", "Open", "runs that are registered, queued or training"),
    count("open_claims", "Claims", "values that only the agent has measured"),
    { id: "last_seen", title: "Seen", about: "time since its newest run began or ended", width: 70, number: true, sort: (row) => row.last_seen, cell: (row) => (row.last_seen === null ? "" : age(stampOf(row.last_seen))) },
  ];
}
