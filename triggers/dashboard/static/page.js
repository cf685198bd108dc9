// The frame of the page: tags and places on the left, health on top, one view in the middle.
//
// A view is { title, open(place, page) }. `open` fills the element `place` and answers
// { read?(), show?(answer), touches?(event), reset?(), moved?(), end?(), every?, rest? }:
// `read` calls functions, `show` draws their answer, `touches` says which events make it out of date.
// `moved` is called when the address changes within the view; without it, the view is opened again.

import { Fresh } from "./fresh.js";
import { follow, get } from "./lab.js";
import { PROGRAM, digitsOf, h, number, sync } from "./dom.js";
import { health } from "./health.js";
import { nextSteps } from "./parts.js";
import { Runs } from "./runs.js";
import { LAB_VIEWS, TAG_VIEWS, VIEWS } from "./views.js";
import { showWhole } from "./whole.js";

const LAST_EVENTS = 200;
const KEPT_EVENTS = 2000;

const place = document.getElementById("lab");
const [connection, line, asking] = ["connection", "health", "asking"].map((id) => document.getElementById(id));
const untitled = document.title;

// Shows the lab to this reader; answers how to end that.
export function open({ reader, changed }) {
  place.replaceChildren(document.getElementById("page").content.cloneNode(true));
  const ending = new AbortController();
  const page = new Page(reader, ending.signal);
  showWhole(ending.signal);
  tell("connecting");
  follow({
    ended: ending.signal,
    last: LAST_EVENTS,
    told: (event) => page.hear(event),
    reset: (gap) => page.reset(gap),
    changed(live) {
      if (live && connection.dataset.state === "cut") page.refresh();
      tell(live ? "live" : "cut");
      changed(live);
    },
  });
  return () => {
    ending.abort();
    page.close();
    for (const element of [place, asking, line]) element.replaceChildren();
    asking.close();
    line.title = "";
    document.title = untitled;
    tell("");
  };
}

function tell(state) {
  connection.dataset.state = state;
  connection.textContent = state === "cut" ? "reconnecting" : state;
  connection.hidden = state === "";
}

class Page {
  constructor(reader, ended) {
    [this.reader, this.ended] = [reader, ended];
    this.isOperator = reader.role === "operator";
    this.tags = null; // those of report::tags; null until they are known
    this.events = []; // newest first
    this.heard = 0;
    this.view = null;
    this.sources = [new Fresh(health(this), ended), new Fresh(this.listOfTags(), ended)];
    addEventListener("hashchange", () => this.arrive(), { signal: ended });
    this.move();
    for (const source of this.sources) source.now();
  }

  // The address: which view of which tag, and what is chosen within it.
  get address() {
    const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    found.tag ??= LAB_VIEWS.includes(found.view) ? null : (this.tags?.[0]?.name ?? null);
    found.view = Object.hasOwn(VIEWS, found.view ?? "") ? found.view : found.run ? "run" : "overview";
    return found;
  }

  // A link that changes the address: null takes a part away.
  link(changes) {
    const kept = Object.entries({ ...this.address, ...changes }).filter(([name, value]) =>
      value !== null && value !== undefined && value !== "" && !(name === "view" && ["overview", "run"].includes(value)));
    return `#${new URLSearchParams(kept)}`;
  }

  // A link to another view; nothing that was chosen in this one goes along.
  to(chosen) {
    const { tag, ...others } = this.address;
    return this.link({ ...Object.fromEntries(Object.keys(others).map((name) => [name, null])), tag, ...chosen });
  }

  go(changes, { replace = false } = {}) {
    const link = this.link(changes);
    if (!replace) location.hash = link;
    else if (link !== location.hash) {
      history.replaceState(null, "", link);
      this.move();
    }
  }

  get tag() {
    return this.tags?.find(({ name }) => name === this.address.tag) ?? null;
  }

  // The runs of the chosen tag; they are read from the first time that a view asks for them.
  get runs() {
    const { tag } = this.address;
    if (this.kept?.tag !== tag) {
      this.kept?.end();
      this.kept = new Runs(tag);
    }
    return this.kept;
  }

  // What the view is opened for: another one of these opens it again.
  get subject() {
    const { view, tag, run } = this.address;
    return [view, tag, view === "run" ? run : null].join("\n");
  }

  // A tag that is not known may be newer than the list.
  arrive() {
    this.move();
    if (this.tags !== null && this.tag === null && !LAB_VIEWS.includes(this.address.view)) this.sources[1].now();
  }

  move() {
    const { view } = this.address;
    const shown = this.subject;
    if (this.view !== null && this.view.shown === shown && this.view.made.moved) {
      this.view.made.moved();
    } else {
      this.show(view, shown);
    }
    this.frame();
  }

  show(view, shown) {
    this.closeView();
    const target = document.getElementById("view");
    target.replaceChildren();
    this.problem("");
    const { tag } = this.address;
    if (!LAB_VIEWS.includes(view) && this.tag === null) {
      if (this.tags !== null) target.replaceChildren(tag === null ? firstSteps() : this.unknownTag(tag));
      return;
    }
    target.className = view;
    const ending = new AbortController();
    const made = VIEWS[view].open(target, this);
    const source = made.read && new Fresh({
      ...made,
      show: (answer) => {
        this.problem("");
        made.show(answer);
      },
      failed: (problem) => (made.failed ?? ((found) => this.problem(found.message, found.hint)))(problem),
    }, ending.signal);
    this.view = { shown, made, source, ending };
    source?.now();
  }

  closeView() {
    if (this.view !== null) asking.close(); // it asked about this view
    this.view?.ending.abort();
    this.view?.made.end?.();
    this.view = null;
  }

  close() {
    this.closeView();
    this.kept?.end();
  }

  problem(message, hint = "") {
    const element = document.getElementById("problem");
    element.textContent = [message, hint].filter(Boolean).join(": ");
  }

  hear(event) {
    this.heard += 1;
    this.events.unshift({ nth: this.heard, ...event });
    if (this.events.length > KEPT_EVENTS) this.events.pop();
    if (event.tag !== null) this.sources[1].soon();
    this.sources[0].soon();
    if (this.kept && event.tag === this.kept.tag) this.kept.hear(event);
    this.view?.made.hear?.(event);
    if (this.view?.made.touches?.(event)) this.view.source?.soon();
  }

  reset({ since, first }) {
    this.hear({ id: `gap ${first}`, type: "reset", time: new Date().toISOString(), tag: null, subject: "",
      data: { text: `events after ${since} are no longer kept; everything was read again` } });
    this.refresh();
  }

  refresh() {
    for (const source of this.sources) source.now();
    this.kept?.readAgain();
    this.view?.source?.now();
  }

  listOfTags() {
    return {
      every: 15000,
      rest: 2000,
      read: () => get("/api/report/tags"),
      show: ({ tags }) => {
        this.tags = tags;
        if (this.isCut) this.problem("");
        this.isCut = false;
        // without a tag in the address, the newest one is shown
        if (this.view?.shown !== this.subject) this.move();
        else this.frame();
      },
      failed: (problem) => {
        this.isCut = true;
        this.problem(problem.message, problem.hint);
      },
    };
  }

  // Brings the lists of tags, tabs and places, and the title, to the address.
  frame() {
    const { tag: name, view } = this.address;
    const cards = (this.tags ?? []).map((tag) => ({ ...tag, chosen: tag.name === name }));
    sync(document.getElementById("tags"), cards, (tag) => tag.name, (tag) => card(tag, this));
    const places = LAB_VIEWS.map((id) => ({ id, chosen: id === view }));
    sync(document.getElementById("places"), [...places, { href: "/docs", title: "API" }], (found) => found.id ?? found.href, ({ id, chosen, href, title }) =>
      h("li", {}, h("a", { href: href ?? this.to({ tag: null, view: id }), "aria-current": chosen ? "page" : null }, title ?? VIEWS[id].title)));
    const tabs = document.getElementById("tabs");
    const tag = this.tag;
    tabs.hidden = tag === null || LAB_VIEWS.includes(view);
    const shown = tabs.hidden ? [] : TAG_VIEWS.map((id) => ({ id, href: this.to({ view: id }), chosen: id === view || (id === "runs" && ["run", "compare"].includes(view)) }));
    sync(tabs, shown, ({ id }) => id, ({ id, href, chosen }) =>
      h("a", { href, "aria-current": chosen ? "page" : null }, VIEWS[id].title));
    const best = tag ? bestOf(tag) : null;
    this.bringToSight(`${name} ${view}`);
    document.title = [best, tag?.name ?? VIEWS[view].title, "·", untitled].filter(Boolean).join(" ");
  }

  // A phone shows a part of the lists: another choice is brought into sight, once.
  bringToSight(chosen) {
    const links = place.querySelectorAll("nav [aria-current]");
    if (chosen === this.inSight || this.tags === null || links.length === 0) return; // a tag may be newer than the list
    this.inSight = chosen;
    for (const link of links) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  unknownTag(name) {
    return h("section", { class: "empty", id: "unknown" },
      h("h2", {}, `There is no tag ${name}`),
      h("p", {}, "This lab has:"),
      h("ul", {}, this.tags.map((tag) => h("li", {}, h("a", { href: this.to({ tag: tag.name, view: null }) }, tag.name)))));
  }
}

// Its best value, with the digits that its noise leaves meaningful.
function bestOf({ best, sigma }) {
  return number(best, digitsOf(sigma));
}

function card(tag, page) {
  return h("li", {},
    h("a", { href: page.to({ tag: tag.name, view: null }), "aria-current": tag.chosen ? "true" : null, title: tag.name },
      h("b", {}, tag.name), h("span", { class: "best" }, bestOf(tag)),
      h("span", { class: "dim" }, `${tag.kept_experiments.toLocaleString("en")} kept of ${tag.total_experiments.toLocaleString("en")}`)));
}

function firstSteps() {
  const steps = [
    ["Add this machine's GPUs, or a CPU slot, unless up found them:", `${PROGRAM} worker --repo PATH`],
    ["Open a tag:", `${PROGRAM} setup mar11`],
    [["Start an agent on it, or give yours ", h("a", { href: "/program.md" }, "program.md"), " of this lab:"], `${PROGRAM} agent --tag mar11 -- claude -p`],
    ["Or invite a swarm's workers: say what may vary.", `${PROGRAM} dims scan train.py`],
  ];
  return h("div", { id: "empty" },
    nextSteps("No research yet", ...steps),
    h("p", {}, "To see a full lab: ", h("code", {}, `${PROGRAM} demo`)));
}
