// Every GPU and CPU slot: what it does, for whom and for how long, and how it is doing.

import { PROGRAM, age, badge, h, sync } from "../dom.js";
import { get } from "../lab.js";

export function gpus() {
  const list = document.querySelector("#gpus .gpus");
  const aside = document.querySelector("#gpus .aside");

  return {
    id: "gpus",
    every: 5000,
    touches: (event) => event.type.startsWith("gpu."),

    read: () => get("/api/pool/list"),

    show(pool, view) {
      aside.textContent = pool.total ? `${pool.idle} idle, ${pool.training} training` : "";
      const shown = pool.workers.map(facts).sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }));
      sync(list, shown.length ? shown : [{ id: "" }], (gpu) => gpu.id, (gpu) => (gpu.id ? card(gpu, view) : none()));
    },
  };
}

function facts(gpu) {
  const { gpu_id: id, gpu_name: name, status, holder, leased_at, sick, tripped, consecutive_crashes: crashes, owner } = gpu;
  const { utilization_percent: used, temperature_c, memory_used_mb, memory_total_mb } = gpu.health ?? {};
  return {
    id, name, status, holder, leased_at, crashes,
    why: sick ?? tripped,
    agent: gpu.of_agent ? owner : null,
    used: rounded(used),
    degrees: rounded(temperature_c),
    memory: memory_total_mb ? `${(memory_used_mb / 1024).toFixed(1)} of ${(memory_total_mb / 1024).toFixed(0)} GB` : null,
  };
}

function rounded(value) {
  return value === undefined || value === null ? null : Math.round(value);
}

function card(gpu, view) {
  const what = gpu.holder
    ? [h("a", { href: view.link({ tag: gpu.holder.replace(/-\d+$/, ""), run: gpu.holder }) }, gpu.holder),
        gpu.leased_at ? [" for ", age(gpu.leased_at)] : null]
    : [gpu.why ?? ""];
  const sizes = [
    gpu.agent ? `only for ${gpu.agent}` : null,
    gpu.degrees === null ? null : `${gpu.degrees} °C`,
    gpu.memory,
    gpu.crashes ? `${gpu.crashes} crashes in a row` : null,
  ];
  return h("li", {},
    h("div", {}, h("b", { title: gpu.id }, gpu.id), badge(gpu.status)),
    h("div", {}, h("span", { class: "dim" }, [gpu.name === "cpu" ? "CPU slot" : gpu.name, ...sizes].filter(Boolean).join(" · "))),
    h("div", {}, h("span", {}, ...what.flat()),
      gpu.used === null ? null
        : h("span", { class: "load" }, `${gpu.used} %`, h("meter", { value: gpu.used, max: 100, "aria-label": "utilisation" }))));
}

function none() {
  return h("li", {}, h("p", {}, "No worker yet: "), h("pre", {}, `${PROGRAM} worker --repo PATH`));
}
