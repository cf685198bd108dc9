// Two to five runs side by side: what they measured, their curves, their constants and their changes.

import { curves } from "../curves.js";
import { constants, facts, inSigmas, metrics, readRun, runLink, shown } from "../describe.js";
import { badge, h, number, signed, sync } from "../dom.js";
import { change, changeOf } from "../patch.js";
import { wordOf } from "../runs.js";

const MOST = 5;
const LOOK_AGAIN_MS = 5000; // while one of them runs
const COLUMN_PX = 130;
const OFTEN_CUT = 14; // characters: a line with a longer text shows it whole on focus
// Verdicts alone have colours: each line has a dash of its own.
const LINES = [["accent", "solid"], ["text", "dashed"], ["accent", "dotted"], ["text", [12, 4, 3, 4]], ["dim", [16, 8]]];

export const compare = {
  title: "Compare",
  open(place, page) {
    const ids = [...new Set((page.address.ids ?? "").split(",").filter(Boolean))].slice(0, MOST);
    if (ids.length < 2) {
      place.append(h("section", { class: "empty" }, h("h2", {}, "Nothing to compare yet"), h("p", {}, "Choose 2 to 5 runs in ", h("a", { href: page.to({ view: "runs" }) }, "the table of runs"), " by their boxes.")));
      return {};
    }
    let found = []; // the runs that are there
    let timer = null;
    const changes = new Map(); // id -> { key, element }
    const missing = h("p", { class: "problem", role: "alert" });
    const only = h("button", { type: "button", "aria-pressed": "false", click: () => page.go({ only: page.address.only ? null : "differences" }, { replace: true }) }, "only differences");
    const table = h("table", {}, h("caption", { hidden: true }, "values side by side"), h("thead", {}, h("tr", {})), h("tbody", {}, h("tr", {}, h("td", {}, "Reading."))));
    table.style.minWidth = `${COLUMN_PX * (ids.length + 1)}px`;
    const plot = h("div", { class: "plot small" });
    const patches = h("div", { class: "columns" }, h("p", { class: "nothing" }, "Reading."));
    place.append(missing,
      h("section", { class: "panel" }, h("header", {}, h("h2", {}, `${ids.length} runs`), h("p", { class: "dim note" }, "≠ marks what differs"), only), h("div", { class: "sideways", tabindex: "0", role: "region", "aria-label": "values side by side" }, table)),
      h("section", { class: "panel" }, h("h2", {}, "Progress"), plot), patches);
    const drawn = curves(plot, () => found.map(({ id, ticks, digits }, nth) => ({ name: id, ticks, digits, colour: LINES[nth][0], dash: LINES[nth][1] })));

    function draw() {
      only.setAttribute("aria-pressed", String(Boolean(page.address.only)));
      sync(table.tHead.rows[0], [{ id: "" }, ...found.map(({ id }) => ({ id }))], ({ id }) => id, ({ id }) => h("th", { scope: "col" }, id ? runLink(page, id) : ""));
      const rows = lines(found).filter(({ differs }) => differs || !page.address.only);
      sync(table.tBodies[0], rows, ({ group, name }) => `${group} ${name}`, ({ name, values, differs }) =>
        h("tr", { class: differs ? "differs" : null, tabindex: [name, ...values].some(({ length }) => length > OFTEN_CUT) ? "0" : null }, h("th", { scope: "row", title: name }, differs ? "≠ " : "", name), values.map((value) => h("td", { title: typeof value === "string" ? value : null }, cell(value, page)))));
      drawn.draw();
    }

    function drawChanges() {
      const made = found.map((one) => {
        const parent = one.e.parent_ids[0] ?? "base";
        const key = JSON.stringify([parent, one.e.has_diff, one.isOpen]);
        if (changes.get(one.id)?.key !== key) {
          const content = h("div", { class: "held" }, change(null));
          changes.set(one.id, { key, element: h("section", { class: "panel" }, h("header", {}, h("h3", {}, `Change of ${one.id}`), h("p", { class: "dim note" }, `against ${parent === "base" ? "the base" : parent}`)), content) });
          changeOf(one, parent).then((answer) => content.replaceChildren(...change(answer)));
        }
        return changes.get(one.id).element;
      });
      if (made.some((element, nth) => patches.children[nth] !== element)) patches.replaceChildren(...made);
    }

    return {
      every: 60000,
      touches: ({ subject }) => ids.includes(String(subject).replace(/\.\d+$/, "")),
      read: () => Promise.all(ids.map((id) => readRun(id).catch((problem) => {
        if (problem.status !== 404) throw problem;
        return { problem };
      }))),
      show(answers) {
        found = answers.filter((answer) => !answer.problem);
        missing.textContent = answers.map(({ problem }) => problem?.message).filter(Boolean).join("; ");
        draw();
        drawChanges();
        clearTimeout(timer);
        if (found.some(({ isOpen }) => isOpen)) timer = setTimeout(() => page.view?.source?.soon(), LOOK_AGAIN_MS);
      },
      moved() {
        const wanted = (page.address.ids ?? "").split(",").filter(Boolean).slice(0, MOST).join();
        if (wanted === ids.join()) draw();
        else page.show("compare", page.view.shown);
      },
      end() {
        clearTimeout(timer);
        drawn.end();
      },
    };
  },
};

// The lines of the table: a name, a value of each run, and whether these differ.
function lines(found) {
  const groups = { result, facts, metrics, constants };
  return Object.entries(groups).flatMap(([group, read]) => {
    const all = found.map((one) => new Map(read(one)));
    const names = [...new Set(all.flatMap((one) => [...one.keys()]))];
    return names.map((name) => {
      const values = all.map((one) => one.get(name) ?? "");
      return { group, name, values, differs: new Set(values.map((value) => JSON.stringify(value))).size > 1 };
    });
  });
}

function result({ row, metric, gain, digits, sigmas, e }) {
  return [
    ["verdict", { verdict: row.verdict, word: wordOf(row) }],
    [metric ?? "value", number(row.value, digits)],
    ["gain", signed(gain, { digits }).textContent],
    ["sigmas", sigmas === null ? "" : inSigmas(sigmas)],
    ...(row.trust ? [["trust", row.trust]] : []),
    ["what changed", e.description],
    ["hypothesis", e.hypothesis],
  ];
}

function cell(value, page) {
  return value.verdict ? badge(value.word, value.verdict) : shown(value, page);
}
