// What happens, newest first: filtered, and held still where somebody reads.

import { h, moment, number, sync } from "../dom.js";

const KEPT = 1000;
const SHOWN = 300;
const TELLING = {
  "experiment.registered": ["category", "hypothesis"],
  "experiment.finished": ["status", "val_bpb", "description"],
  "experiment.retesting": ["retest_id"],
  "experiment.retested": ["status", "val_bpb"],
  "experiment.confirmed": ["val_bpb"],
  "experiment.revalued": ["val_bpb", "judged_val_bpb"],
  "experiment.demoted": ["val_bpb", "best_experiment_id"],
  "experiment.retracted": ["val_bpb", "reason", "best_experiment_id"],
  "experiment.promoted": ["val_bpb"],
  "experiment.refuted": ["val_bpb", "reported"],
  "best.changed": ["val_bpb"],
  "strategy.changed": ["mode", "reason"],
};

export function events(view) {
  const list = document.querySelector("#events .events");
  const pause = document.querySelector("#events .pause");
  const [byTag, byType] = document.querySelectorAll("#events select");
  const kept = []; // newest first
  const tags = new Set();
  let heldAt = null; // how many had come when the reader paused
  let come = 0;
  let drawing = false;

  for (const type of document.querySelector("meta[name=event-types]").content.split(" ")) byType.append(h("option", {}, type));
  byTag.addEventListener("change", draw);
  byType.addEventListener("change", draw);
  pause.addEventListener("click", () => {
    heldAt = heldAt === null ? come : null;
    draw();
  });

  return {
    told(event) {
      if (event.tag !== null && !tags.has(event.tag)) {
        tags.add(event.tag);
        byTag.append(h("option", {}, event.tag));
      }
      add(event);
    },

    reset(gap) {
      add({ id: `gap ${gap.first}`, type: "reset", time: new Date().toISOString(), tag: null, subject: "",
        data: { text: `events after ${gap.since} are no longer kept; everything was read again` } });
    },
  };

  function add(event) {
    come += 1;
    kept.unshift({ nth: come, ...event });
    if (kept.length > KEPT) kept.pop();
    if (!drawing) {
      drawing = true;
      requestAnimationFrame(draw); // a burst is drawn once
    }
  }

  function draw() {
    drawing = false;
    const held = heldAt !== null;
    pause.textContent = held ? `Resume (${come - heldAt})` : "Pause";
    pause.setAttribute("aria-pressed", String(held));
    const wanted = (event) =>
      event.type === "reset" || // a gap is everybody's business
      ((!byTag.value || event.tag === byTag.value) && (!byType.value || event.type === byType.value));
    const shown = kept.filter((event) => (!held || event.nth <= heldAt) && wanted(event));
    sync(list, shown.slice(0, SHOWN), (event) => event.id, (event) => line(event, view));
  }
}

function line(event, view) {
  const said = { experiment_id: event.subject, tag: event.tag, gpu_id: event.subject };
  const telling = TELLING[event.type];
  const facts = telling
    ? telling.map((name) => shown(event.data[name]))
    : Object.entries(event.data).filter(([name, value]) => value !== null && said[name] !== value).map(([name, value]) => (typeof value === "string" ? value : `${name} ${shown(value)}`));
  const text = facts.filter((fact) => fact !== "").join(" · ");
  const isRun = event.tag !== null && event.subject.startsWith(`${event.tag}-`);
  return h("li", { class: event.type.replace(".", "-") },
    moment(event.time),
    h("span", { class: "type" }, event.type),
    isRun ? h("a", { href: view.link({ tag: event.tag, run: event.subject }) }, event.subject) : h("span", {}, event.subject),
    h("span", { class: "facts", title: text }, text));
}

function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
