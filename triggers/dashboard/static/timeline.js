// When each run ran, as a bar on the lane of its worker, its GPU or its agent.

import { HALF_A_TIME, axis, zooming } from "./charts.js";
import { labNow } from "./dom.js";

const MOST_BARS = 5000; // the newest runs
const BAR = 0.6; // of a lane's height

export function timeline(rows, told, colours) {
  const shown = rows.slice(0, MOST_BARS).filter(({ verdict, finished_at: end }) => end !== null || verdict === "running");
  const laneOf = (row) => row.worker ?? row.gpu ?? row.agent ?? "";
  const lanes = [...new Set(shown.map(laneOf))].sort((one, other) => other.localeCompare(one, "en", { numeric: true }));
  const data = shown.map((row) => {
    const end = row.finished_at === null ? labNow() : row.finished_at * 1000;
    const begin = row.duration_s === null ? (row.finished_at === null ? row.registered_at * 1000 : end) : end - row.duration_s * 1000;
    return { id: row.id, value: [lanes.indexOf(laneOf(row)), begin, end], itemStyle: { color: colours[row.verdict] } };
  });
  const [first, last] = data.reduce(([low, high], { value: [, begin, end] }) => [Math.min(low, begin), Math.max(high, end)], data.length ? [Infinity, 0] : [0, 1]);
  return {
    grid: { left: HALF_A_TIME, right: HALF_A_TIME, top: 12, bottom: 64, containLabel: true },
    xAxis: axis(colours, { type: "time", min: first, max: last > first ? last : first + 1, axisLabel: { show: data.length > 0, color: colours.dim, hideOverlap: true, alignMinLabel: "left", alignMaxLabel: "right" } }),
    yAxis: axis(colours, { type: "category", data: lanes, axisLabel: { color: colours.text, width: 110, overflow: "truncate" } }),
    dataZoom: zooming(colours),
    tooltip: { trigger: "item", formatter: ({ data: bar }) => told(bar.id) },
    series: [{ name: "timeline", type: "custom", data, encode: { x: [1, 2], y: 0 }, renderItem: bar }],
  };
}

function bar(_, api) {
  const [left, middle] = api.coord([api.value(1), api.value(0)]);
  const [right] = api.coord([api.value(2), api.value(0)]);
  const height = Math.max(2, Math.min(18, api.size([0, 1])[1] * BAR));
  return { type: "rect", shape: { x: left, y: middle - height / 2, width: Math.max(2, right - left), height }, style: { fill: api.visual("color") } };
}
