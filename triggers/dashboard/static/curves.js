// What runs reported on their way, as curves over their progress.

import { axis, chart } from "./charts.js";
import { number } from "./dom.js";

const SETTLED = 0.2; // progress from which values decide the ends of the axis: the first ones are far off

// Draws the lines that `lines()` answers: { name, ticks, digits, colour, dash?, width? }, a colour by its name.
export function curves(element, lines) {
  const drawn = chart(element, (colours) => option(lines(), colours));
  return {
    ...drawn,
    draw() {
      drawn.say(`reports of ${lines().map(({ name }) => name).join(", ")}`);
      drawn.draw();
    },
  };
}

function option(lines, colours) {
  const values = lines.flatMap(({ ticks }) => {
    const settled = ticks.filter(([progress]) => progress >= SETTLED);
    return settled.length > 0 ? settled : ticks.slice(-1);
  }).map(([, value]) => value);
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.01 || 1;
  const ends = values.length > 0 ? { min: low - pad, max: high + pad } : {};
  return {
    grid: { left: 66, right: 18, top: 10, bottom: 58 },
    legend: { bottom: 0, itemWidth: 26, itemHeight: 8, type: "scroll", textStyle: { color: colours.text }, data: lines.map(({ name }) => name) },
    xAxis: axis(colours, { min: 0, max: ({ max }) => Math.max(1, max), axisLabel: { color: colours.dim, hideOverlap: true, formatter: (value) => `${Math.round(value * 100)} %` } }),
    yAxis: axis(colours, { ...ends, axisLabel: { color: colours.dim, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: (value) => String(Number(value.toPrecision(5))) } }),
    dataZoom: [{ type: "inside", filterMode: "none" }],
    tooltip: { trigger: "axis", formatter: (found) => found.map(({ seriesName, value }) => `${seriesName}  ${Math.round(value[0] * 100)} %  ${number(value[1], lines.find(({ name }) => name === seriesName).digits)}`).join("\n") },
    series: lines.map(({ name, ticks, colour, dash = "solid", width = 2 }) => ({
      name, type: "line", data: ticks.map(([progress, value]) => [progress, value]), showSymbol: ticks.length === 1, symbolSize: 5,
      lineStyle: { color: colours[colour], type: dash, width }, itemStyle: { color: colours[colour] },
    })),
  };
}
