// The lab on the page: which panels there are, what is chosen, and when a panel reads again.
//
// A panel is made when the lab is shown. It is { id, read(view), show(answer, view), touches(event, view), failed?,
// end?, every?, rest? }. `read` asks functions, `show` puts the answer into the section of that id, `touches` says which
// events make it out of date. It reads at most once in `rest` ms, and every `every` ms where things change without an
// event.

import { follow } from "./lab.js";
import { events } from "./panels/events.js";
import { experiments } from "./panels/experiments.js";
import { gpus } from "./panels/gpus.js";
import { health } from "./panels/health.js";
import { night } from "./panels/night.js";
import { progress } from "./panels/progress.js";
import { run } from "./panels/run.js";
import { tags } from "./panels/tags.js";

const LAST_EVENTS = 200;
const REST_MS = 1000;

const PANELS = [health, tags, night, progress, experiments, gpus, run];
const place = document.getElementById("lab");
const connection = document.getElementById("connection");
const untitled = document.title;

// Shows the lab; answers how to end that. With it goes all that was shown, and every timer, listener and connection.
export function open({ changed }) {
  place.replaceChildren(document.getElementById("page").content.cloneNode(true));
  const ending = new AbortController();
  const ended = ending.signal;
  const view = chosenView(refreshAll);
  const panels = PANELS.map((make) => new Fresh(make(view), view, ended));
  const feed = events(view);

  function refreshAll() {
    for (const fresh of panels) fresh.now();
  }

  addEventListener("hashchange", () => {
    view.readAddress();
    refreshAll();
  }, { signal: ended });

  tell("connecting");
  refreshAll();
  follow({
    ended,
    last: LAST_EVENTS,
    told(event) {
      feed.told(event);
      for (const fresh of panels) if (fresh.panel.touches(event, view)) fresh.soon();
    },
    reset(gap) {
      feed.reset(gap);
      refreshAll();
    },
    changed(live) {
      if (live && connection.dataset.state === "cut") refreshAll();
      tell(live ? "live" : "cut");
      changed(live);
    },
  });

  return () => {
    ending.abort();
    place.replaceChildren();
    document.title = untitled;
    tell("");
  };
}

function tell(state) {
  connection.dataset.state = state;
  connection.textContent = state === "cut" ? "reconnecting" : state;
  connection.hidden = state === "";
}

// What is chosen stands in the address, so that a view can be linked and the back button works.
function chosenView(refreshAll) {
  const view = {
    tag: null,
    run: null,
    tags: [],
    readAddress() {
      const chosen = new URLSearchParams(location.hash.slice(1));
      this.tag = chosen.get("tag") ?? this.tag;
      this.run = chosen.get("run");
    },
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
  view.readAddress();
  return view;
}

class Fresh {
  constructor(panel, view, ended) {
    [this.panel, this.view, this.ended] = [panel, view, ended];
    this.reading = false;
    this.again = false;
    this.readAt = -Infinity;
    this.timer = null;
    const interval = panel.every ? setInterval(() => this.soon(), panel.every) : null;
    ended.addEventListener("abort", () => {
      clearInterval(interval);
      clearTimeout(this.timer);
      panel.end?.();
    });
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
    if (this.ended.aborted) return;
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    this.readAt = performance.now();
    const problem = document.querySelector(`#${this.panel.id} .problem`);
    try {
      const answer = await this.panel.read(this.view);
      if (this.ended.aborted) return;
      this.panel.show(answer, this.view);
      if (problem) problem.textContent = problem.title = "";
    } catch (error) {
      if (this.ended.aborted) return;
      if (this.panel.failed) this.panel.failed(error);
      if (problem) [problem.textContent, problem.title] = [error.message, error.hint ?? ""];
    } finally {
      this.reading = false;
      if (this.again && !this.ended.aborted) {
        this.again = false;
        this.soon();
      }
    }
  }
}
