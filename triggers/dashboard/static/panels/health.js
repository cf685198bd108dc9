// The strip on top: what is alive, what waits, and what to do about it.

import { PROGRAM, h, sync } from "../dom.js";
import { get } from "../lab.js";

const LAG_WORTH_A_LOOK = 100;
const NEEDED = ["web", "events", "clock"];

export function health() {
  const strip = document.querySelector("#health dl");
  const hints = document.querySelector("#health .hints");

  return {
    id: "health",
    every: 5000,
    rest: 2000,
    touches: () => true,

    async read() {
      const [status, ready] = await Promise.all([get("/api/lab/status"), get("/readyz")]);
      return { status, redis: ready.redis };
    },

    show({ status, redis }) {
      const { counts, gpu_pool: pool, events } = status;
      const missing = NEEDED.filter((kind) => !counts[kind]);
      const lag = Math.max(0, ...Object.values(events.bindings).map((b) => (b.undelivered ?? 0) + (b.unacknowledged ?? 0)));
      render([
        ["Processes", processes(counts, missing), missing.length ? "bad" : "ok"],
        ["Redis", redis.aof ? `${redis.version}, durable` : `${redis.version}, not durable`, redis.aof ? "ok" : "warn"],
        ["GPUs", `${pool.training} of ${pool.total} busy`, pool.total - pool.offline ? "ok" : "warn"],
        ...isolations(status.processes),
        ...agents(status.agents),
        ["Queue", `${status.queue} waiting`, status.queue && !(pool.total - pool.offline) ? "bad" : "ok"],
        ["Event lag", String(lag), lag > LAG_WORTH_A_LOOK ? "warn" : "ok"],
        ["Dead letters", String(events.dead_letters), events.dead_letters ? "bad" : "ok"],
      ]);
      hint([...status.hints, ...(events.dead_letters ? [`see what failed with ${PROGRAM} call event::dead`] : [])]);
    },

    failed(problem) {
      render([["Lab", problem.message, "bad"]]);
      hint([problem.hint]);
    },
  };

  function render(cells) {
    sync(strip, cells, ([label]) => label, ([label, value, state, whole = value]) =>
      h("div", { class: state }, h("dt", {}, label), h("dd", { title: whole }, value)));
  }

  function hint(lines) {
    const text = lines.filter(Boolean).join("; ");
    if (hints.textContent !== text) hints.textContent = text;
  }
}

// The agents that `nightjar agent` has at work, with what they have used; nothing where there are none.
function agents(found) {
  const sum = (name) => found.map((agent) => agent[name]).reduce((one, other) => (other === null ? one : (one ?? 0) + other), null);
  const states = ["working", "starting", "waiting", "limited"].map((state) => [found.filter((agent) => agent.state === state).length, state]);
  const [tokens, cost] = [sum("tokens"), sum("cost_usd")];
  const line = [
    ...states.filter(([count]) => count).map(([count, state]) => `${count} ${state}`),
    ...(tokens === null ? [] : [`${tokens.toLocaleString("en")} tokens`]),
    ...(cost === null ? [] : [`${cost.toFixed(2)} USD`]),
  ];
  const whole = found.map((agent) => {
    const until = agent.until ? ` until ${agent.until} (${agent.limit})` : "";
    return `${agent.agent} on ${agent.tag}: ${agent.state}${until}, ${agent.starts} starts, ${agent.experiments} experiments`;
  });
  return found.length ? [["Agents", line.join(", "), states[0][0] ? "ok" : "warn", whole.join("; ")]] : [];
}

// How far runs are kept from their machines; nothing where no worker trains.
function isolations(processes) {
  const found = [...new Set(processes.map((process) => process.isolation).filter(Boolean))].sort();
  const open = found.some((told) => /^(none|limits)\b/.test(told));
  const tiers = [...new Set(found.map((told) => told.split(" ")[0]))];
  return found.length ? [["Isolation", tiers.join(", "), open ? "warn" : "ok", found.join(", ")]] : [];
}

function processes(counts, missing) {
  const kinds = [...NEEDED, ...Object.keys(counts).filter((kind) => !NEEDED.includes(kind))].filter((kind) => counts[kind]);
  const alive = kinds.map((kind) => [kind, counts[kind]]).map(([kind, count]) => (count > 1 ? `${count} ${kind}s` : kind));
  return [...missing.map((kind) => `no ${kind}`), ...alive].join(", ");
}
