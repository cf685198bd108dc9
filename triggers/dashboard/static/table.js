// A table of many rows: only those in sight are elements, so 100,000 rows scroll like 100.
//
// A column is { id, title, cell(row), width?, number?, sort?(row), wide? }. `wide` columns share what is left.

import { h } from "./dom.js";

const ROW_PX = 26;
const AHEAD = 12; // rows beyond the edge
const CONTROLS = "a, button, input, [tabindex]";

export class Table {
  // `key(row)` names a row, `sorted(id)` is called for a click on a title: without it the table sorts its rows. `open(row)` for a click on a row: a link in the
  // row leads to the same place, for the keyboard. `opens(row)` says whether a row opens anything.
  // `rowClass(row)` and `selected`, a Set of keys with `toggled(key)`, are optional.
  constructor(place, { label, key, open = null, opens = () => open !== null, sorted = null, rowClass = null, selected = null, toggled = null, empty = "" }) {
    Object.assign(this, { key, open, opens, rowClass, selected, toggled });
    this.sortsItself = sorted === null;
    this.sorted = sorted ?? ((id) => {
      this.order = nextOrder(this.order, id);
      this.show(this.given);
    });
    this.columns = [];
    this.rows = [];
    this.order = { id: null, down: true };
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.group = h("colgroup", {});
    this.table = h("table", { "aria-label": label }, this.group, h("thead", {}, this.head), this.body);
    this.empty = h("p", { class: "nothing", hidden: true }, empty);
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, this.table, this.empty);
    place.append(this.scroll);
    this.scroll.addEventListener("scroll", () => this.soon(), { passive: true });
    this.resized = new ResizeObserver(() => this.soon());
    this.resized.observe(this.scroll);
    this.drawn = new Map(); // key -> { element, state }
    this.frame = null;
  }

  // `digits` are those of the numbers that cells show: other digits draw every row anew.
  show(given) {
    const { columns, rows, order = this.order, empty, digits } = given;
    Object.assign(this, { given, order });
    const titles = JSON.stringify([columns.map(({ id, title }) => [id, title]), order, digits]);
    if (titles !== this.titles) {
      this.titles = titles;
      this.columns = columns;
      this.drawHead();
      this.drawn.clear();
      this.body.replaceChildren();
    }
    this.columns = columns;
    this.rows = this.sortsItself ? ordered(rows, columns.find(({ id }) => id === order.id), order.down) : rows;
    if (empty !== undefined) this.empty.replaceChildren(...[empty].flat());
    this.empty.hidden = rows.length > 0;
    this.table.setAttribute("aria-rowcount", String(rows.length));
    this.draw();
  }

  drawHead() {
    const focused = [...this.head.querySelectorAll("button")].indexOf(document.activeElement);
    const boxes = this.selected === null ? [] : [h("col", { class: "box" })];
    this.group.replaceChildren(...boxes, ...this.columns.map((column) => h("col", { class: classOf(column), width: column.wide ? null : column.width ?? 90 })));
    const titles = this.columns.map((column) => {
      const isSorted = this.order.id === column.id;
      const name = isSorted ? `${column.title} ${this.order.down ? "↓" : "↑"}` : column.title;
      return h("th", { class: classOf(column), scope: "col", title: column.about, "aria-sort": isSorted ? (this.order.down ? "descending" : "ascending") : null },
        column.sort ? h("button", { type: "button", click: () => this.sorted(column.id) }, name) : name);
    });
    this.head.replaceChildren(...(boxes.length ? [h("th", { "aria-label": "choose" })] : []), ...titles);
    this.head.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    const height = this.scroll.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_PX) - AHEAD);
    const end = Math.min(this.rows.length, Math.ceil((this.scroll.scrollTop + height) / ROW_PX) + AHEAD);
    const active = this.body.contains(document.activeElement) ? document.activeElement : null;
    const focused = active?.closest("tr")?.dataset.key;
    const place = focused === undefined ? 0 : [...active.closest("tr").querySelectorAll(CONTROLS)].indexOf(active);
    const kept = new Map();
    const elements = this.rows.slice(first, end).map((row, nth) => {
      const key = String(this.key(row));
      const state = JSON.stringify([row, this.selected?.has(key)]);
      let found = this.drawn.get(key);
      if (found?.state !== state) found = { state, element: this.row(row, key) };
      found.element.setAttribute("aria-rowindex", String(first + nth + 2));
      kept.set(key, found);
      return found.element;
    });
    this.drawn = kept;
    const gap = (count) => {
      const cell = h("td", {}); // one cell: to span columns would give room to those that a phone hides
      cell.style.height = `${count * ROW_PX}px`;
      return h("tr", { class: "gap", "aria-hidden": "true" }, cell);
    };
    this.body.replaceChildren(gap(first), ...elements, gap(this.rows.length - end));
    if (focused !== undefined) this.drawn.get(focused)?.element.querySelectorAll(CONTROLS)[place]?.focus({ preventScroll: true });
  }

  row(row, key) {
    const box = this.selected === null ? [] : [h("td", { class: "box" }, h("input", {
      type: "checkbox", checked: this.selected.has(key), "aria-label": `choose ${key}`, change: () => this.toggled(key) }))];
    const opened = ({ target }) => target.closest("a, button, input") ?? (getSelection().isCollapsed && this.open(row));
    const isOpening = this.opens(row);
    const element = h("tr", { "data-key": key, class: [isOpening ? "opens" : null, this.rowClass?.(row)].filter(Boolean).join(" ") || null, click: isOpening ? opened : null },
      ...box, ...this.columns.map((column) => h("td", { class: classOf(column) }, column.cell(row))));
    if (!element.querySelector(CONTROLS) && element.querySelector(".cut")) element.firstChild.tabIndex = 0; // its cut texts are shown on focus
    return element;
  }

  end() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
  }
}

function classOf({ id, number }) {
  return `column-${id}${number ? " number" : ""}`;
}

// The next order when a title is clicked: down, up, then as it came.
export function nextOrder({ id, down }, clicked) {
  if (id !== clicked) return { id: clicked, down: true };
  return down ? { id, down: false } : { id: null, down: true };
}

// Rows by a column; those without a value come last.
export function ordered(rows, column, down) {
  if (!column?.sort) return rows;
  const sign = down ? -1 : 1;
  return rows.map((row) => [column.sort(row), row]).sort(([one], [other]) => {
    if (one === other) return 0;
    if (one === null || one === undefined) return 1;
    if (other === null || other === undefined) return -1;
    return sign * (typeof one === "string" ? one.localeCompare(other) : one - other);
  }).map(([, row]) => row);
}
