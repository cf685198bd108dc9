// One line on the state of the lab: what works, or what needs a person.

import { PROGRAM, counted, sync } from "./dom.js";
import { action } from "./actions.js";
import { get } from "./lab.js";

const LAG_WORTH_A_LOOK = 1000;
const NEEDED = ["web", "events", "clock"];

export function health(page) {
  const line = document.getElementById("health");
  return {
    every: 5000,
    rest: 2000,
    async read() {
      const [status, ready] = await Promise.all([get("/api/lab/status"), get("/readyz")]);
      return { status, redis: ready.redis };
    },
    show({ status, redis }) {
      const wrong = problems(status, redis);
      tell(wrong.length ? wrong.join("; ") : busy(status), wrong.length > 0);
      drawPausing(status, page);
      line.title = [...wrong, ...status.hints, facts(status, redis)].join("\n");
    },
    failed: (problem) => tell([problem.message, problem.hint].filter(Boolean).join(": "), true),
  };

  function tell(text, isBad) {
    if (line.textContent !== text) line.textContent = text;
    line.classList.toggle("bad", isBad);
  }
}

// What only a person can mend.
function problems({ counts, events, queue, gpu_pool: pool }, redis) {
  const missing = NEEDED.filter((kind) => !counts[kind]);
  const lag = lagOf(events);
  return [
    missing.length ? `no ${missing.join(", no ")} process runs: ${PROGRAM} up` : null,
    redis.aof ? null : "Redis writes nothing to disk",
    lag > LAG_WORTH_A_LOOK ? `event handlers are ${lag} events behind` : null,
    events.dead_letters ? `${counted(events.dead_letters, "dead letter")}: see Events` : null,
    queue && pool.total === pool.offline ? `${counted(queue, "run")} waiting, and no worker: ${PROGRAM} worker --repo PATH` : null,
  ].filter(Boolean);
}

// Pause those tags that run, resume those that are paused, all at once.
function drawPausing({ tags, paused_tags: paused }, page) {
  const done = () => page.sources[0].now();
  const all = [
    tags > paused.length ? { name: "Pause all", title: "Pause all tags?", text: `No further run of ${counted(tags - paused.length, "tag")} starts. Running ones finish.`, path: "/api/tag/pause-all" } : null,
    paused.length ? { name: "Resume all", title: "Resume all tags?", text: `The waiting runs of ${counted(paused.length, "paused tag")} get their places in the queue back.`, path: "/api/tag/unpause-all" } : null,
  ].filter((one) => one !== null && page.isOperator);
  sync(document.getElementById("all"), all, ({ name }) => name, (one) => action(page, { ...one, body: () => ({}), done }));
}

function busy({ gpu_pool: pool, queue, agents, paused_tags: paused, swarm_workers: workers }) {
  return [
    pool.total - pool.offline ? `${pool.training} of ${counted(pool.total - pool.offline, "slot")} busy` : null,
    workers ? counted(workers, "swarm worker") : null,
    agents.length ? counted(agents.length, "agent") : null,
    queue ? `${queue} waiting` : null,
    paused.length ? `${counted(paused.length, "tag")} paused` : null,
  ].filter(Boolean).join(" · ") || "ready";
}

function facts({ counts, processes, events }, { version, aof }) {
  const isolation = [...new Set(processes.map((process) => process.isolation).filter(Boolean))];
  return [
    `processes: ${Object.entries(counts).map(([kind, count]) => (count > 1 ? `${count} ${kind}` : kind)).join(", ")}`,
    `Redis ${version}, ${aof ? "durable" : "not durable"}`,
    ...isolation.map((found) => `isolation: ${found}`),
    `event lag: ${lagOf(events)}`,
  ].join("\n");
}

function lagOf({ bindings }) {
  return Math.max(0, ...Object.values(bindings).map((b) => (b.undelivered ?? 0) + (b.unacknowledged ?? 0)));
}
