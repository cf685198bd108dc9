// What agents and workers are told to do: versions of the program, the draft of the next one, and the journal.

import { patchLines } from "../patch.js";
import { PROGRAM, age, badge, counted, cut, fill, h, number, sync } from "../dom.js";
import { facts, figure, panel } from "../parts.js";
import { Table } from "../table.js";
import { action } from "../actions.js";
import { call, get, picture } from "../lab.js";

const MOST_VERSIONS = 50;
const MOST_CHECKPOINTS = 10;
const STATES = { drafting: "running", ready: "running", confirmed: "keep" };

export const program = {
  title: "Program",
  open(place, page) {
    const { tag } = page.address;
    const query = `?${new URLSearchParams({ tag })}`;
    const figures = h("dl", { class: "figures" });
    const diff = h("pre", { class: "patch log", tabindex: "0", "aria-label": "change" }, "Reading.");
    const against = h("select", { "aria-label": "against", change: ({ target }) => page.go({ against: target.value }, { replace: true }) });
    const whole = h("button", { type: "button", "aria-pressed": "false", click: () => page.go({ show: page.address.show ? null : "text" }, { replace: true }) }, "Text");
    const draft = h("div", {});
    const journal = h("div", { class: "journal" }, h("p", { class: "dim" }, "Reading."));
    const write = h("div", { class: "acts" });
    const [versions, change] = [panel("Versions"), panel("Change", diff)];
    versions.firstChild.append(write);
    change.firstChild.append(h("div", { class: "axes" }, against, whole));
    place.append(figures, h("div", { class: "columns roomy" }, versions, change), h("div", { class: "columns roomy" }, panel("Draft of the next version", draft), panel("Journal", journal)));
    const table = new Table(versions, { label: "versions", key: ({ number: nth }) => nth, open: ({ number: nth }) => page.go({ number: nth, against: null }), rowClass: (one) => (one.chosen ? "chosen" : null) });
    table.show({ columns: [], rows: [], empty: "Reading." });

    function draw({ listed, chosen, changed, pipeline, spec, checkpoints, count }) {
      const { versions: all } = listed;
      sync(figures, [
        { name: "Version", value: String(listed.count), more: all[0]?.reason ?? "" },
        { name: "Written", value: "never", at: all[0]?.written_at ?? null, more: all[0] ? `by ${all[0].author}` : "" },
        { name: "Strategy", value: all[0]?.strategy ?? "none", more: all[0] ? `after ${counted(all[0].results, "result")}` : "" },
        { name: "Trust in drafts", value: number(pipeline.deployment_confidence, 2), more: pipeline.hit_rate === null ? "no draft was decided yet" : `${number(100 * pipeline.hit_rate, 0)} % confirmed` },
        { name: "Checkpoints", value: String(count), more: "of the journal" },
      ], ({ name }) => name, figure);
      table.show({ rows: all.map((one) => ({ ...one, chosen: one.number === chosen })), empty: ["No version yet. The first is written after 50 results, or by ", h("code", {}, `${PROGRAM} call program::write --tag ${tag}`)], columns: [
        { id: "version", title: "#", width: 44, number: true, cell: (one) => h("a", { href: page.link({ number: one.number, against: null }) }, String(one.number)) },
        { id: "finished", title: "Age", width: 76, number: true, cell: ({ written_at: at }) => age(at) },
        { id: "results", title: "Results", width: 66, number: true, cell: ({ results }) => String(results) },
        { id: "why", title: "Why", wide: true, cell: ({ reason }) => cut(reason) },
        { id: "strategy", title: "Strategy", width: 96, cell: ({ strategy }) => cut(strategy) },
        { id: "agent", title: "Author", width: 96, cell: ({ author }) => cut(author) },
      ] });
      write.replaceChildren(...[
        action(page, { name: "Write a version", title: `Write the next program of ${tag}?`, text: "A language model writes it where the lab has one, else the templates. Workers and agents read it from then on.",
          path: "/api/program/write", inputs: [{ name: "reason", label: "Why", value: "an operator asked for it" }], body: (given) => ({ tag, ...given }) }),
        listed.count > all.length ? h("span", { class: "dim" }, `the newest ${all.length} of ${listed.count}`) : null,
      ].filter(Boolean));
      drawChange(all, changed);
      drawDraft(pipeline, spec);
      sync(journal, checkpoints, ({ number: nth }) => nth, ({ text, isNewest }) => {
        const [title, ...rest] = text.split("\n");
        return h("details", { open: isNewest }, h("summary", {}, title.replace(/^#+ /, "")), h("div", { class: "log" }, markdown(rest)));
      });
      if (checkpoints.length === 0) journal.replaceChildren(h("p", { class: "dim" }, "No checkpoint yet: one is written every 100 results."));
    }

    function drawChange(all, changed) {
      const earlier = all.map(({ number: nth }) => nth).filter((nth) => nth < changed.number);
      const offered = [...new Set([...earlier, changed.against])].sort((one, other) => other - one);
      against.replaceChildren(...offered.map((nth) => h("option", { value: nth, selected: nth === changed.against }, nth === 0 ? "against nothing" : `against version ${nth}`)));
      whole.setAttribute("aria-pressed", String(Boolean(page.address.show)));
      const text = all.find(({ number: nth }) => nth === changed.number)?.text ?? "This version is older than those listed.";
      fill(diff, [changed, page.address.show], () => (page.address.show ? [text] : changed.diff === "" ? ["Nothing changed."] : patchLines(changed.diff)));
    }

    function drawDraft(pipeline, spec) {
      const { enabled, spec_state: state, thresholds } = pipeline;
      const isOpen = state === "drafting" || state === "ready";
      const wasOpen = draft.querySelector("details")?.open ?? false;
      fill(draft, [pipeline, spec], () => [
        enabled ? null : h("p", {}, "Drafts are off. The next program is written when its results are in. To draft it ahead: ", h("code", {}, `NIGHTJAR_PIPELINE_ENABLED=true ${PROGRAM} up`)),
        enabled ? facts([
          ["Draft", state ? badge(state, STATES[state]) : "none"], ["Confidence", state && `${number(pipeline.confidence, 2)} (${number(thresholds.confidence, 2)} needed)`],
          ["Trust", `${number(pipeline.deployment_confidence, 2)} (${number(thresholds.deployment_confidence, 2)} needed)`], ["Workers follow it", pipeline.deploy_allowed ? "yes" : "no"],
          ["Batches", String(pipeline.batch_id)], ["Ticks of this batch", String(pipeline.ticks_this_batch)],
          ["Confirmed", String(pipeline.confirmed_count)], ["Flushed", String(pipeline.flush_count)], ["Last flushed", pipeline.last_flush_token], ["Id", pipeline.spec_id],
        ]) : null,
        spec ? h("details", { open: wasOpen }, h("summary", {}, "The drafted program"), h("pre", { class: "log", tabindex: "0" }, spec)) : null,
        isOpen ? action(page, { name: "Flush the draft", title: "Flush the draft?", text: "The draft is dropped, and trust in drafts falls by 0.20.", verb: "Flush", path: "/pipeline/flush", inputs: [{ name: "reason", label: "Why", required: false }], body: (given) => ({ tag, ...given }) }) : null,
      ]);
    }

    return {
      rest: 2000,
      every: 60000,
      touches: (event) => event.tag === tag && /^(program|pipeline|journal)\./.test(event.type),
      async read() {
        const { number: nth, against: other } = page.address;
        const asked = { tag, ...(nth ? { number: Number(nth) } : {}), ...(other ? { against: Number(other) } : {}) };
        const [listed, changed, pipeline, { count }] = await Promise.all(
          [call("/api/program/list", { tag, limit: MOST_VERSIONS }), call("/api/program/diff", asked), get(`/pipeline/status${query}`), call("/api/journal/list", { tag, first: 10 ** 9 })]);
        const [spec, read] = await Promise.all([pipeline.spec_state ? picture(`/pipeline/spec${query}`).then((blob) => blob.text()) : "", call("/api/journal/list", { tag, first: Math.max(1, count - MOST_CHECKPOINTS + 1) })]);
        const checkpoints = read.checkpoints.reverse().map((one) => ({ ...one, isNewest: one.number === count }));
        return { listed, changed, chosen: changed.number, pipeline, spec, count, checkpoints };
      },
      show: draw,
      moved: () => page.view.source.now(),
      end: () => table.end(),
    };
  },
};

// The journal's Markdown: headings, tables and paragraphs, each a text.
function markdown(lines) {
  const found = [];
  for (const line of lines) {
    const cells = line.startsWith("|") ? line.replaceAll("`", "").split(/(?<!\\)\|/).slice(1, -1).map((cell) => cell.trim().replaceAll("\\|", "|")) : null;
    if (cells === null) {
      const [, title] = /^#+ (.*)/.exec(line) ?? [];
      if (line.trim()) found.push(title ? h("h3", {}, title) : h("p", {}, line));
    } else if (found.at(-1)?.matches("table")) {
      if (!cells.every((cell) => /^-+$/.test(cell))) found.at(-1).append(h("tr", {}, cells.map((cell) => h("td", { title: cell }, cell))));
    } else {
      found.push(h("table", {}, h("tr", {}, cells.map((cell) => h("th", { scope: "col" }, cell)))));
    }
  }
  return found;
}
