// Charts by Apache ECharts, in the page's own colours. The library is loaded with the first chart.

export const VERDICTS = {
  keep: { symbol: "circle", size: 11 },
  discard: { symbol: "path://M5,0 A5,5 0 1,1 4.99,0 Z M5,1.8 A3.2,3.2 0 1,0 5.01,1.8 Z", size: 7 }, // ECharts fills emptyCircle white
  demoted: { symbol: "triangle", size: 9, rotate: 180 },
  crash: { symbol: "path://M0,1 L1,0 L5,4 L9,0 L10,1 L6,5 L10,9 L9,10 L5,6 L1,10 L0,9 L4,5 Z", size: 8 },
  running: { symbol: "diamond", size: 10 },
  baseline: { symbol: "rect", size: 8 },
};

export const HALF_A_TIME = 42; // pixels beside a time axis: half of "23:59:59 999", which may stand at its very end
const REST_MS = 200;
const CELLS = [900, 120]; // of a plot: of several points in one cell, one is drawn

let library = null;

export function load() {
  // ECharts empties elements by innerHTML = "". The page's policy lets no other markup pass.
  if (library === null) {
    window.trustedTypes?.createPolicy("default", {
      createHTML(text) {
        if (text !== "") throw new TypeError("the page makes no markup from text");
        return text;
      },
    });
    library = import("./echarts/echarts.esm.min.js");
  }
  return library;
}

// The colours of the page as it is now, light or dark.
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["keep", "discard", "demoted", "crash", "running", "accent", "text", "dim", "line", "panel", "band", "page"];
  return { ...Object.fromEntries(names.map((name) => [name, of(name)])), baseline: of("text"), traces: of("traces").split(" ") };
}

// A chart in `element`, drawn anew by `option(colours, zoomed)` whenever `draw` is called or the page turns light or dark.
// `on` maps an event of ECharts, such as "click", to a handler. `label` says in words what the chart shows.
export function chart(element, option, { label = "", on = {} } = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let instance = null;
  let ended = false;
  let restUntil = 0;
  let timer = null;
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);

  load().then(({ init }) => {
    if (ended) return;
    instance = init(element, null, { renderer: "canvas" });
    for (const [name, handler] of Object.entries(on)) instance.on(name, handler);
    draw();
  });

  // What changes fast is drawn a few times a second, and less often where drawing takes long.
  function draw() {
    if (instance === null || ended || timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      const begun = performance.now();
      const found = colours();
      const [common, own] = [base(found), option(found, zoomed())];
      instance.setOption({ ...common, ...own, tooltip: { ...common.tooltip, ...own.tooltip } }, { replaceMerge: ["series", "grid", "xAxis", "yAxis", "parallelAxis"] });
      const drawn = performance.now();
      restUntil = drawn + Math.max(REST_MS, 3 * (drawn - begun));
    }, Math.max(0, restUntil - performance.now()));
  }

  // The part of the x axis in sight, as two shares of it.
  function zoomed() {
    const [zoom] = instance.getOption()?.dataZoom ?? [];
    return zoom ? [zoom.start / 100, zoom.end / 100] : [0, 1];
  }

  const resized = new ResizeObserver(() => {
    instance?.resize();
    draw();
  });
  resized.observe(element);
  dark.addEventListener("change", draw);

  return {
    draw,
    say: (text) => element.setAttribute("aria-label", text),
    clear: () => instance?.clear(), // before it shows something of another kind
    end() {
      ended = true;
      clearTimeout(timer);
      resized.disconnect();
      dark.removeEventListener("change", draw);
      instance?.dispose();
    },
  };
}

function base({ text, line, panel }) {
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: text, fontSize: 12 },
    // rich text is drawn on the canvas: texts of agents never become elements
    tooltip: { renderMode: "richText", confine: true, backgroundColor: panel, borderColor: line, textStyle: { color: text, fontSize: 12 } },
    aria: { enabled: false },
  };
}

// Those of many points { value: [x, y] } that can be told apart between these ends of the axes.
export function apart(points, [left, right], [low, high]) {
  if (points.length < CELLS[0]) return points;
  const taken = new Set();
  return points.filter(({ value: [x, y] }) => {
    if (x < left || x > right) return false;
    const cell = Math.floor(((x - left) / (right - left)) * CELLS[0]) * 1000 + Math.floor(((y - low) / (high - low)) * CELLS[1]);
    return taken.size !== taken.add(cell).size;
  });
}

// What zooms the x axis: the wheel, and a bar under the plot.
export function zooming({ line, dim }, more = {}) {
  const both = { filterMode: "none", ...more };
  return [{ type: "inside", ...both }, { type: "slider", ...both, height: 16, bottom: 14, showDataShadow: false, brushSelect: false, borderColor: line, textStyle: { color: dim } }];
}

// An axis in the page's colours.
export function axis({ dim, line }, more = {}) {
  return {
    type: "value",
    scale: true,
    axisLine: { show: true, lineStyle: { color: line } },
    axisTick: { show: false },
    axisLabel: { color: dim, hideOverlap: true },
    splitLine: { lineStyle: { color: line, opacity: 0.5 } },
    nameTextStyle: { color: dim },
    ...more,
  };
}
