// The page: which panels there are, what is chosen, and when a panel reads again.
//
// A panel is { id, read(view), show(answer, view), touches(event, view), every?, rest? }. `read` asks functions, `show`
// puts the answer into the section of that id, `touches` says which events make it out of date. It reads at most once
// in `rest` ms, and every `every` ms where things change without an event.

import { follow } from "./lab.js";
import { events } from "./panels/events.js";
import { experiments } from "./panels/experiments.js";
import { gpus } from "./panels/gpus.js";
import { health } from "./panels/health.js";
import { progress } from "./panels/progress.js";
import { run } from "./panels/run.js";
import { tags } from "./panels/tags.js";

const LAST_EVENTS = 200;
const REST_MS = 1000;

// What is chosen stands in the address, so that a view can be linked and the back button works.
const view = {
  tag: null,
  run: null,
  tags: [],
  choose(chosen) {
    location.hash = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
  },
  link(chosen) {
    return `#${new URLSearchParams(chosen)}`;
  },
  // The tags are known: whoever chose none sees the newest.
  known(found) {
    this.tags = found;
    if (this.tag === null && found.length > 0) {
      this.tag = found[0].name;
      refreshAll();
    }
  },
};

function readAddress() {
  const chosen = new URLSearchParams(location.hash.slice(1));
  view.tag = chosen.get("tag") ?? view.tag;
  view.run = chosen.get("run");
}

class Fresh {
  constructor(panel) {
    this.panel = panel;
    this.reading = false;
    this.again = false;
    this.readAt = -Infinity;
    this.timer = null;
    if (panel.every) setInterval(() => this.soon(), panel.every);
  }

  soon() {
    if (this.reading) this.again = true;
    else if (this.timer === null) {
      const wait = Math.max(0, this.readAt + (this.panel.rest ?? REST_MS) - performance.now());
      this.timer = setTimeout(() => this.now(), wait);
    }
  }

  async now() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    this.readAt = performance.now();
    const problem = document.querySelector(`#${this.panel.id} .problem`);
    try {
      this.panel.show(await this.panel.read(view), view);
      if (problem) problem.textContent = problem.title = "";
    } catch (error) {
      if (this.panel.failed) this.panel.failed(error);
      if (problem) [problem.textContent, problem.title] = [error.message, error.hint ?? ""];
    } finally {
      this.reading = false;
      if (this.again) {
        this.again = false;
        this.soon();
      }
    }
  }
}

const panels = [health, tags, progress, experiments, gpus, run].map((panel) => new Fresh(panel));

function refreshAll() {
  for (const fresh of panels) fresh.now();
}

addEventListener("hashchange", () => {
  readAddress();
  refreshAll();
});

readAddress();
events.start(view);
refreshAll();

const connection = document.getElementById("connection");
follow({
  last: LAST_EVENTS,
  told(event) {
    events.told(event);
    for (const fresh of panels) if (fresh.panel.touches(event, view)) fresh.soon();
  },
  reset(gap) {
    events.reset(gap);
    refreshAll();
  },
  changed(live) {
    if (live && connection.dataset.state === "cut") refreshAll();
    connection.dataset.state = live ? "live" : "cut";
    connection.textContent = live ? "live" : "reconnecting";
  },
});
