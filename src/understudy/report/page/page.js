// What the reader can do: choose axes, filter, read a point, sort tables, change the theme.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const state = { problem: 0, axis: "params", scale: "log", hidden: new Set(), chosen: null, paper: 0 };
const holder = byId("chart");
const tooltip = byId("tooltip");

function factList(facts) {
  const list = element("dl", { class: "facts" });
  for (const [name, text] of facts) list.append(element("dt", {}, name), element("dd", {}, text));
  return list;
}

function showTooltip(place, title, facts) {
  tooltip.replaceChildren(element("h3", {}, title), factList(facts));
  tooltip.hidden = false;
  const outer = byId("figure").getBoundingClientRect();
  const point = place.getBoundingClientRect();
  const middle = point.left + point.width / 2 - outer.left;
  const { offsetWidth: width, offsetHeight: height } = tooltip;
  const left = middle + 16 + width <= outer.width ? middle + 16 : middle - 16 - width;
  const level = point.top + point.height / 2 - outer.top;
  let top = level - height / 2;
  let across = left;
  if (left < 0) {
    // no room beside the point: below it, or above where the window ends
    across = Math.max(0, Math.min(outer.width - width, middle - width / 2));
    top = point.bottom + height + 8 < window.innerHeight ? level + 18 : level - height - 18;
  }
  top = Math.max(top, -outer.top + 4);
  tooltip.style.left = `${across}px`;
  tooltip.style.top = `${top}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
  for (const place of holder.querySelectorAll(".point.active")) place.classList.remove("active");
}

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

function swatch(name, look) {
  const mark = shape("path", { class: "mark", d: marker(name, 4.5), transform: "translate(8 8)" });
  return shape("svg", { width: 16, height: 16, viewBox: "0 0 16 16", class: `point ${look}`, "aria-hidden": "true" }, mark);
}

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

function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const value = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one !== null && other !== null) return direction * (one - other);
    if (one === null && other === null) {
      return direction * a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
    }
    return one === null ? 1 : -1; // what is not known comes last, whichever way it is sorted
  };
  body.append(...[...body.rows].sort(compare));
}

for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th[aria-sort]");
    if (!head) return;
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    sortBy(table, head.cellIndex, ascending ? 1 : -1);
  });
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

const themeButton = byId("theme");
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
function labelTheme() {
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-pressed", isDark());
  themeButton.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
}
themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  labelTheme();
});
prefersDark.addEventListener("change", labelTheme);

const navigation = document.querySelector("nav");
for (const section of document.querySelectorAll("main section[id]")) {
  const title = section.querySelector("h2");
  if (title) navigation.append(element("a", { href: `#${section.id}` }, title.firstChild.textContent.trim()));
}

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
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTooltip(); });
labelTheme();
showProblem();
