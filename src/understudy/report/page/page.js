// What the reader of a sweep can do: choose axes, filter, open a point.

const state = { problem: 0, axis: "params", scale: "log", hidden: new Set(), chosen: null, paper: 0 };

// Settings that the facts of a cell say already.
const REPEATED = new Set("network data request.transform request.budget attention taps decay".split(" "));
const UNTOLD = new Set(["cells", "machine", "commit", "training"]);

function groupFacts(group) {
  const varied = Object.entries(group.settings).filter(([name]) => !REPEATED.has(name));
  return group.facts.filter(([name]) => !UNTOLD.has(name)).concat(varied.slice(0, 6));
}

function showDetail(index) {
  const panel = byId("detail");
  const group = data.groups[index];
  state.chosen = index;
  const close = element("button", { type: "button", class: "close" }, "Close");
  close.addEventListener("click", () => { panel.hidden = true; state.chosen = null; });
  const chart = element("div");
  const settings = Object.entries({ ...data.shared, ...group.settings }).sort(([a], [b]) => (a < b ? -1 : 1));
  const recipe = element("details", {}, element("summary", {}, "All settings"), factList(settings));
  const columns = element("div", { class: "columns" }, element("div", {}, chart, recipe), factList(group.facts));
  panel.replaceChildren(close, element("h3", {}, group.label), columns);
  panel.hidden = false;
  const lines = [];
  const teacher = data.problems[group.problem].teacher;
  if (teacher !== null && teacher !== index && data.groups[teacher].curves.length) {
    const { epoch, test } = data.groups[teacher].curves[0];
    lines.push({ x: epoch, y: test, look: "quiet", name: "teacher, test" });
  }
  for (const curve of group.curves) {
    lines.push({ x: curve.epoch, y: curve.train, series: group.series, look: "faint", name: "training" });
    lines.push({ x: curve.epoch, y: curve.test, series: group.series, name: "test" });
  }
  lineChart(chart, "Learning curve", lines, { x: "epoch", y: "top-1 error, %", unitX: "", unitY: "" });
}

const hooks = {
  // Makes points answer to the pointer, and to the keyboard by one tab stop and the arrow keys.
  connect(points, published) {
    points.forEach(({ place, group, index }, position) => {
      const facts = groupFacts(group);
      const spoken = group.facts.slice(0, 6).map(([name, text]) => `${name} ${text}`).join(", ");
      place.setAttribute("tabindex", position ? -1 : 0);
      place.setAttribute("role", "button");
      place.setAttribute("aria-label", `${group.label}: ${spoken}`);
      const show = () => { hideTooltip(); place.classList.add("active"); showTooltip(place, group.label, facts); };
      place.addEventListener("pointerenter", show);
      place.addEventListener("focus", show);
      place.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hideTooltip(); });
      place.addEventListener("blur", hideTooltip);
      place.addEventListener("click", () => { show(); showDetail(index); });
      place.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (step) {
          const next = points[(position + step + points.length) % points.length].place;
          place.setAttribute("tabindex", -1);
          next.setAttribute("tabindex", 0);
          next.focus();
        } else if (event.key === "Enter" || event.key === " ") {
          showDetail(index);
        } else if (event.key === "Escape") {
          hideTooltip();
        } else {
          return;
        }
        event.preventDefault();
      });
    });
    for (const { place, published: point, x } of published) {
      const facts = [["top-1 error", `${point.error} %`], [AXES[state.axis].title, formatNumber(x, AXES[state.axis].unit)], ["source", point.source]];
      place.addEventListener("pointerenter", () => showTooltip(place, point.label, facts));
      place.addEventListener("pointerleave", hideTooltip);
    }
  },
};

function drawLegend() {
  const legend = byId("legend");
  legend.replaceChildren();
  if (!data.problems.length) return;
  const items = data.series.map((series, number) => ({
    key: series.key,
    tally: data.groups.filter((group) => group.problem === state.problem && group.series === number && group.error !== null).length,
    sample: swatch(series.marker, `series-${number}`),
  }));
  for (const source of ["paper", "literature"]) {
    const tally = data.problems[state.problem].published.filter((point) => point.source === source).length;
    items.push({ key: `published ${source}`, tally, sample: swatch("circle", `published-point ${source}`) });
  }
  for (const { key, tally, sample } of items.filter((item) => item.tally)) {
    const button = element("button", { type: "button", "aria-pressed": !state.hidden.has(key), "data-key": key },
      sample, element("span", {}, key), element("span", { class: "tally" }, String(tally)));
    button.addEventListener("click", () => {
      if (!state.hidden.delete(key)) state.hidden.add(key);
      button.setAttribute("aria-pressed", !state.hidden.has(key));
      for (const row of document.querySelectorAll("tr[data-key]")) row.hidden = state.hidden.has(row.dataset.key);
      redraw();
    });
    legend.append(button);
  }
}

function redraw() {
  hideTooltip();
  drawChart(data, state, holder, hooks);
}

function showProblem() {
  for (const list of document.querySelectorAll(".tiles")) list.hidden = Number(list.dataset.problem) !== state.problem;
  drawLegend();
  redraw();
}

function drawMethod() {
  const outer = byId("method-charts");
  if (!outer) return;
  outer.replaceChildren();
  const chart = () => outer.appendChild(element("div"));
  const { knob_params: knob, hash_buckets: buckets, width_mult_adds: widths } = data.method;
  const known = (key) => {
    const number = data.series.findIndex((series) => series.key === key);
    return number < 0 ? { look: "quiet" } : { series: number };
  };
  const charts = [];
  if (knob) {
    const lines = Object.entries(knob.transforms).map(([name, params]) => ({ x: knob.scale, y: params, name, ...known(name) }));
    lines.push({ x: [0, 1], y: [knob.dense, knob.dense], look: "plain faint", name: "dense" });
    charts.push([chart(), `Parameters of ${knob.network} against the normalised knob`, lines,
      { logY: true, band: knob.support, x: "normalised knob (band: all reach)", y: "parameters", unitX: "", unitY: "count" }]);
  }
  if (buckets) {
    const percent = (shares) => shares.map((share) => 100 * share);
    charts.push([chart(), "Unused hash buckets against compression", [
      { x: buckets.ratio, y: percent(buckets.theory), look: "quiet", name: "exp(−1/c)" },
      { x: buckets.measured_ratio, y: percent(buckets.independent), dots: true, look: "", name: "independent, measured" },
      { x: buckets.measured_ratio, y: percent(buckets.balanced), ...known("hashed"), name: "balanced, measured" },
    ], { xRange: [0, 1], x: "real weights / entries, c", y: "unused, %", unitX: "", unitY: "" }]);
  }
  if (widths) {
    const lines = [
      { x: widths.width, y: widths.dense, look: "plain", name: "dense" },
      { x: widths.width, y: widths.acdc, ...known("acdc"), name: `ACDC, ${widths.layers} layers` },
      { x: widths.width, y: widths.acdc_published, look: "quiet faint", name: "published estimate" },
    ];
    if (widths.crossover) {
      lines.push({ x: [widths.crossover], y: [widths.crossover ** 2], dots: true, look: "", name: `fewer from N = ${widths.crossover}` });
    }
    charts.push([chart(), "Mult-adds of a vector against width", lines,
      { logX: true, logY: true, x: "width N", y: "mult-adds", unitX: "count", unitY: "count" }]);
  }
  for (const each of charts) lineChart(...each);
}

for (const name of ["axis", "scale"]) {
  byId(name).addEventListener("change", (event) => { state[name] = event.target.value; redraw(); });
}
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
byId("problem")?.addEventListener("change", (event) => {
  state.problem = Number(event.target.value);
  byId("detail").hidden = true;
  showProblem();
});

let drawnWidth = 0;
new ResizeObserver(() => {
  const width = holder.clientWidth;
  if (width === drawnWidth) return;
  drawnWidth = width;
  redraw();
  drawMethod();
  if (state.chosen !== null) showDetail(state.chosen);
}).observe(holder);
// On paper the chart is drawn for a column of print, so that its text stays readable.
window.addEventListener("beforeprint", () => { state.paper = 680; redraw(); });
window.addEventListener("afterprint", () => { state.paper = 0; redraw(); });
showProblem();
