// What the reader of a compression can do: choose cost and measure, filter, open a student's layers.

const state = { axis: "params", measure: data.measures[0].key, hidden: new Set(), student: data.best, paper: 0 };

function chosenMeasure() {
  return data.measures.find((measure) => measure.key === state.measure);
}

// Points of what is shown: a student as it is and, where it was trained, as it was before.
function shownPoints() {
  const shown = [];
  data.students.forEach((student, index) => {
    if (state.hidden.has(data.series[student.series].key) || !(student[state.axis] > 0)) return;
    const place = (values, before) => ({ student, index, before, x: student[state.axis], y: values[state.measure] });
    if (student.after) shown.push(place(student.before, true));
    shown.push(place(student.after || student.before, false));
  });
  return shown.filter((point) => point.y !== null);
}

function showStudent(index) {
  state.student = index;
  for (const panel of document.querySelectorAll(".student")) panel.hidden = Number(panel.dataset.student) !== index;
  const choice = byId("student");
  if (choice) choice.value = String(index);
}

function connect(points) {
  points.forEach((point, position) => {
    const { place, student, index, before } = point;
    const title = before ? `${student.name}, before recovery` : student.name;
    place.setAttribute("tabindex", position ? -1 : 0);
    place.setAttribute("role", "button");
    place.setAttribute("aria-label", `${title}: ${student.facts.map((fact) => fact.join(" ")).join(", ")}`);
    const show = () => { hideTooltip(); place.classList.add("active"); showTooltip(place, title, student.facts); };
    const open = () => { showStudent(index); byId("layers").scrollIntoView(); };
    place.addEventListener("pointerenter", show);
    place.addEventListener("focus", show);
    place.addEventListener("pointerleave", hideTooltip);
    place.addEventListener("blur", hideTooltip);
    place.addEventListener("click", open);
    place.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) {
        const next = points[(position + step + points.length) % points.length].place;
        place.setAttribute("tabindex", -1);
        next.setAttribute("tabindex", 0);
        next.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        open();
      } else {
        return;
      }
      event.preventDefault();
    });
  });
}

function redraw() {
  hideTooltip();
  holder.replaceChildren();
  const points = shownPoints();
  if (!points.length) {
    holder.append(element("p", { class: "lead" }, "Nothing to draw: no student shown has this cost."));
    return;
  }
  const width = state.paper || Math.max(300, holder.clientWidth);
  const height = Math.round(Math.min(520, Math.max(340, width * 0.5)));
  const box = { left: 52, top: 30, right: width - 14, bottom: height - 46 };
  const axis = AXES[state.axis];
  const [original, reference] = [data.original[state.axis], data.original[state.measure]];
  const highest = Math.max(...points.map((point) => point.x), original || 0);
  const [low, high] = extent([...points.map((point) => point.y), reference]);
  const margin = Math.max(0.08 * (high - low), 1e-3 * Math.abs(high));
  const x = linearScale(0, highest * 1.06, box.left, box.right, width / 75);
  const y = linearScale(low - margin, high + margin, box.bottom, box.top, height / 60);
  const measure = chosenMeasure();
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${measure.title} against ${axis.title}` });
  holder.append(svg);
  frame(svg, box, x, y, { x: axis.unit, y: "" }, { x: axis.title, y: measure.title });
  const level = y.at(reference).toFixed(1);
  svg.append(shape("path", { class: "reference", d: `M${box.left} ${level}H${box.right}` }));
  svg.append(shape("text", { class: "reference-text", x: box.left + 6, y: y.at(reference) - 6 }, "original"));
  if (original > 0) {
    const mark = shape("path", { class: "mark", d: marker("star", 5) });
    svg.append(shape("g", { class: "point original", transform: `translate(${x.at(original).toFixed(1)} ${level})` }, mark));
  }
  data.series.forEach((series, number) => {
    for (const before of [true, false]) {
      const line = points.filter((point) => point.student.series === number && point.before === before);
      if (line.length < 2) continue;
      line.sort((a, b) => a.x - b.x);
      const path = line.map((point) => `${x.at(point.x).toFixed(1)} ${y.at(point.y).toFixed(1)}`).join("L");
      svg.append(shape("path", { class: `line series-${number}${before ? " faint" : ""}`, d: `M${path}` }));
    }
  });
  for (const point of points) {
    point.place = shape("g", {
      class: `point series-${point.student.series}${point.before ? " hollow" : ""}`,
      transform: `translate(${x.at(point.x).toFixed(1)} ${y.at(point.y).toFixed(1)})`,
      "data-index": point.index,
    }, shape("circle", { class: "halo", r: 10 }), shape("circle", { class: "target", r: 12 }),
    shape("path", { class: "mark", d: marker(data.series[point.student.series].marker, 5) }));
    svg.append(point.place);
  }
  connect([...points].sort((a, b) => a.x - b.x || a.y - b.y));
}

data.series.forEach((series, number) => {
  const tally = data.students.filter((student) => student.series === number).length;
  const button = element("button", { type: "button", "aria-pressed": true, "data-key": series.key },
    swatch(series.marker, `series-${number}`), element("span", {}, series.key), element("span", { class: "tally" }, String(tally)));
  button.addEventListener("click", () => {
    if (!state.hidden.delete(series.key)) state.hidden.add(series.key);
    button.setAttribute("aria-pressed", !state.hidden.has(series.key));
    for (const row of document.querySelectorAll("tr[data-key]")) row.hidden = state.hidden.has(row.dataset.key);
    redraw();
  });
  byId("legend").append(button);
});
for (const name of ["axis", "measure"]) {
  byId(name).addEventListener("change", (event) => { state[name] = event.target.value; redraw(); });
}
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
byId("student")?.addEventListener("change", (event) => showStudent(Number(event.target.value)));

let drawnWidth = 0;
new ResizeObserver(() => {
  if (holder.clientWidth === drawnWidth) return;
  drawnWidth = holder.clientWidth;
  redraw();
}).observe(holder);
// On paper the chart is drawn for a column of print, so that its text stays readable.
window.addEventListener("beforeprint", () => { state.paper = 680; redraw(); });
window.addEventListener("afterprint", () => { state.paper = 0; redraw(); });
showStudent(state.student);
redraw();
