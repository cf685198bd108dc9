// Every run of a tag in a table: filter, sort, choose columns, select some to compare.

import { badge, counted, cut, h, local, number, signed, span, stampOf, sync } from "../dom.js";
import { inSigmas } from "../describe.js";
import { noRunYet, offer } from "../parts.js";
import { FILTERS, TRUST, matching, wordOf } from "../runs.js";
import { Table, nextOrder, ordered } from "../table.js";

const MOST_COMPARED = 5;
const ALWAYS = "number"; // its link opens the run by keyboard
const SHOWN = [ALWAYS, "status", "value", "gain", "sigmas", "changed", "took", "finished", "agent", "gpu"];

export const runs = {
  title: "Runs",
  open(place, page) {
    const selected = new Set((page.address.ids ?? "").split(",").filter(Boolean));
    const search = h("input", { type: "search", placeholder: "Filter: words, agent:ada, status:keep", "aria-label": "filter", value: page.address.q ?? "", input: () => page.go({ q: search.value }, { replace: true }) });
    const picks = Object.fromEntries(FILTERS.map((name) => [name, h("select", { "aria-label": name, change: ({ target }) => page.go({ [name]: target.value }) })]));
    const note = h("p", { class: "dim note", role: "status" });
    const chooser = h("details", { class: "chooser" }, h("summary", {}, "Columns"), h("div", {}));
    const compare = h("a", { class: "button", hidden: true });
    const plot = h("a", { class: "button" }, "Plot");
    const csv = h("button", { type: "button", click: () => download(`${page.address.tag}.csv`, asCsv(found, columns(page))) }, "CSV");
    const bar = h("div", { class: "bar" }, search, ...Object.values(picks), chooser, csv, plot, compare, note);
    place.append(bar);
    const table = new Table(place, {
      label: `runs of ${page.address.tag}`,
      key: (row) => row.id,
      open: (row) => page.go({ view: "run", run: row.id }),
      sorted: (id) => page.go({ sort: written(nextOrder(orderOf(page.address), id)) }),
      rowClass: (row) => row.verdict,
      selected,
      toggled(id) {
        if (!selected.delete(id)) selected.add(id);
        page.go({ ids: [...selected].join(",") }, { replace: true });
      },
    });
    let found = [];

    function draw() {
      const { address, runs: all } = page;
      const order = orderOf(address);
      const shown = columns(page);
      found = ordered(all.rows.filter(matching(address)), shown.find(({ id }) => id === order.id) ?? allColumns(page).find(({ id }) => id === order.id), order.down);
      for (const [name, select] of Object.entries(picks)) offered(select, name, all.rows, address[name] ?? "");
      choose(chooser.lastElementChild, page);
      const reading = all.complete ? "" : `, ${all.rows.length.toLocaleString("en")} of ${all.total.toLocaleString("en")} read`;
      note.textContent = all.problem ?? `${counted(found.length, "run")}${reading}`;
      plot.href = page.to({ view: null, ...Object.fromEntries(["q", ...FILTERS].map((name) => [name, address[name] ?? null])) });
      compare.hidden = selected.size < 2;
      compare.textContent = selected.size > MOST_COMPARED ? `Compare at most ${MOST_COMPARED}` : `Compare ${selected.size}`;
      compare.href = page.to({ view: "compare", ids: [...selected].slice(0, MOST_COMPARED).join(",") });
      table.show({ columns: shown, rows: found, order, digits: all.digits, empty: all.rows.length > 0 ? "No run matches this filter." : all.complete ? noRunYet(address.tag) : "Reading." });
    }

    const stop = page.runs.listen(draw);
    draw();
    return {
      moved: draw,
      end() {
        stop();
        table.end();
      },
    };
  },
};

function allColumns({ runs: { digits, sigma, metric }, to }) {
  return [
    { id: "number", title: "#", width: 56, number: true, sort: (row) => row.number, cell: (row) => h("a", { href: to({ view: "run", run: row.id }) }, String(row.number)), text: (row) => row.id },
    { id: "status", title: "Status", width: 112, sort: (row) => row.status, cell: status, text: (row) => row.status },
    { id: "value", title: metric ?? "Value", width: 88, number: true, sort: (row) => row.value, cell: (row) => number(row.value, digits), text: (row) => row.value },
    { id: "gain", title: "Gain", width: 96, number: true, sort: (row) => row.gain, cell: (row) => signed(row.gain, { digits, isKept: row.verdict === "keep" }), text: (row) => row.gain },
    { id: "sigmas", title: "Sigmas", about: "gain in standard deviations of the noise", width: 76, number: true, sort: (row) => row.gain, cell: (row) => (sigma && row.gain !== null ? inSigmas(row.gain / sigma) : ""), text: (row) => (sigma && row.gain !== null ? row.gain / sigma : null) },
    { id: "changed", title: "What changed", wide: true, sort: (row) => row.description, cell: (row) => cut(row.description || row.hypothesis), text: (row) => row.description },
    { id: "hypothesis", title: "Hypothesis", wide: true, sort: (row) => row.hypothesis, cell: (row) => cut(row.hypothesis), text: (row) => row.hypothesis },
    { id: "category", title: "Category", width: 116, sort: (row) => row.category, cell: (row) => row.category, text: (row) => row.category },
    { id: "took", title: "Took", width: 64, number: true, sort: (row) => row.duration_s, cell: (row) => (row.duration_s === null ? "" : span(row.duration_s)), text: (row) => row.duration_s },
    { id: "finished", title: "Age", about: "time since its end", width: 68, number: true, sort: (row) => row.finished_at, cell: finished, text: (row) => (row.finished_at === null ? null : stampOf(row.finished_at)) },
    { id: "agent", title: "Agent", width: 92, sort: (row) => row.agent ?? row.worker, cell: (row) => cut(row.agent ?? row.worker ?? ""), text: (row) => row.agent ?? row.worker },
    { id: "gpu", title: "GPU", width: 92, sort: (row) => row.gpu, cell: (row) => cut(row.gpu ?? ""), text: (row) => row.gpu },
    { id: "branch", title: "Branch", width: 80, sort: (row) => row.branch, cell: (row) => cut(row.branch ?? ""), text: (row) => row.branch },
    { id: "retests", title: "Further runs", width: 104, number: true, sort: (row) => row.retests.length, cell: (row) => row.retests.map((value) => number(value, digits)).join(" "), text: (row) => row.retests.join(" ") },
  ];
}

function columns(page) {
  const chosen = page.address.columns?.split(",") ?? SHOWN;
  return allColumns({ runs: page.runs, to: (where) => page.to(where) }).filter(({ id }) => id === ALWAYS || chosen.includes(id));
}

function status(row) {
  const about = [TRUST[row.trust], row.near_miss ? "near miss: within the margin of the best" : null, row.over_budget ? "over its budget" : null, row.error_kind].filter(Boolean).join("; ");
  const element = badge(wordOf(row), row.verdict);
  if (about) element.title = about;
  return row.trust === "provisional" || row.trust === "claimed" ? [element, h("span", { class: "dim", title: TRUST[row.trust] }, " ?")] : element;
}

function finished(row) {
  if (row.finished_at === null) return "";
  const stamp = stampOf(row.finished_at);
  return h("time", { datetime: stamp, title: local(stamp) }, "");
}

const valueOf = (row, name) => (name === "agent" ? row.agent ?? row.worker : row[name]);

function offered(select, name, rows, chosen) {
  const values = [...new Set(rows.map((row) => valueOf(row, name)).filter(Boolean))].sort().slice(0, 200);
  if (chosen && !values.includes(chosen)) values.push(chosen);
  select.hidden = values.length < 2 && !chosen;
  offer(select, values, chosen, `any ${name}`);
}

function choose(list, page) {
  const now = () => columns(page).map(({ id }) => id);
  sync(list, allColumns({ runs: page.runs, to: () => "" }).filter(({ id }) => id !== ALWAYS).map(({ id, title }) => ({ id, title })), ({ id }) => id, ({ id, title }) => h("label", {}, h("input", {
    type: "checkbox", name: id,
    change: ({ target }) => page.go({ columns: (target.checked ? [...now(), id] : now().filter((one) => one !== id)).join(",") }, { replace: true }),
  }), title));
  const chosen = now();
  for (const box of list.querySelectorAll("input")) box.checked = chosen.includes(box.name);
}

function orderOf({ sort = "" }) {
  return sort === "" ? { id: null, down: true } : { id: sort.replace(/^-/, ""), down: sort.startsWith("-") };
}

function written({ id, down }) {
  return id === null ? null : `${down ? "-" : ""}${id}`;
}

function asCsv(rows, shown) {
  const quoted = (value) => (/[",\n\r]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  return [shown.map(({ id }) => id), ...rows.map((row) => shown.map(({ text }) => text(row)))].map((line) => line.map(quoted).join(",")).join("\n");
}

function download(name, text) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href, download: name }).click();
  URL.revokeObjectURL(href);
}
