// The curve of a run: the metric as it reported it, over its progress.

import { h, number, svg } from "./dom.js";

const [WIDTH, HEIGHT] = [600, 120];

// What has changed since the last attempt began: a run that is trained again reports from the start.
function lastAttempt(ticks) {
  let begin = 0;
  ticks.forEach(([progress], nth) => {
    if (nth > 0 && progress < ticks[nth - 1][0]) begin = nth;
  });
  return ticks.slice(begin);
}

// Null where there is nothing to draw; ticks are [progress, metric, ...].
export function curve(ticks) {
  const found = lastAttempt(ticks);
  if (found.length < 2) return null;
  const values = found.map(([, metric]) => metric);
  const [lowest, highest] = [Math.min(...values), Math.max(...values)];
  const [reached, last] = found.at(-1);
  const place = ([progress, metric]) => {
    const part = highest === lowest ? 0.5 : (highest - metric) / (highest - lowest);
    return `${(Math.min(1, progress) * WIDTH).toFixed(1)},${(part * HEIGHT).toFixed(1)}`;
  };
  const line = { points: found.map(place).join(" "), "vector-effect": "non-scaling-stroke" };
  const said = `${number(values[0])} at the start, ${number(last)} at ${Math.round(reached * 100)} %`;
  const drawn = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": said };
  return h("figure", { class: "curve" },
    h("div", { class: "scale dim" }, h("span", {}, number(highest, 4)), h("span", {}, number(lowest, 4))),
    svg("svg", drawn, svg("polyline", line)),
    h("figcaption", { class: "dim" }, said));
}
