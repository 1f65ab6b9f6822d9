"use strict";
// Small helpers: elements, scales, ticks, markers, and a line chart.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Regular polygons by their number of corners and the angle of the first, in degrees.
const POLYGONS = {
  square: [4, 45], triangle: [3, -90], diamond: [4, 0], down: [3, 90], pentagon: [5, -90],
  hexagon: [6, 0], left: [3, 180], right: [3, 0],
};

function marker(name, size) {
  const corner = (radius, angle) =>
    `${(radius * Math.cos((angle * Math.PI) / 180)).toFixed(2)} ${(radius * Math.sin((angle * Math.PI) / 180)).toFixed(2)}`;
  if (name in POLYGONS) {
    const [count, first] = POLYGONS[name];
    const corners = Array.from({ length: count }, (_, i) => corner(1.2 * size, first + (360 / count) * i));
    return `M${corners.join("L")}Z`;
  }
  if (name === "star") {
    const corners = Array.from({ length: 10 }, (_, i) => corner(i % 2 ? 0.65 * size : 1.6 * size, -90 + 36 * i));
    return `M${corners.join("L")}Z`;
  }
  if (name === "plus" || name === "cross") {
    const [arm, half] = [1.2 * size, 0.42 * size];
    const outline = [[-half, -arm], [half, -arm], [half, -half], [arm, -half], [arm, half], [half, half],
      [half, arm], [-half, arm], [-half, half], [-arm, half], [-arm, -half], [-half, -half]];
    const turn = name === "cross" ? Math.SQRT1_2 : 0;
    const points = outline.map(([x, y]) => (turn ? [turn * (x - y), turn * (x + y)] : [x, y]));
    return `M${points.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L")}Z`;
  }
  return `M${-size} 0a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0Z`;
}

function formatNumber(value, unit, digits = 3) {
  const steps = unit === "B" ? [[1e9, " GB"], [1e6, " MB"], [1e3, " kB"]] : [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  if (unit === "B" || unit === "count") {
    for (const [size, name] of steps) {
      if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(digits))}${name}`;
    }
    return `${Number(value.toPrecision(digits))}${unit === "B" ? " B" : ""}`;
  }
  return `${Number(value.toPrecision(digits))}${unit ? ` ${unit}` : ""}`;
}

// Numbers beside each other, with as many digits as it takes to move none of them.
function tickTexts(ticks, unit) {
  const shown = (digits) => ticks.map((tick) => formatNumber(tick, unit, digits));
  const exact = shown(12);
  let digits = 3;
  while (digits < 12 && !shown(digits).every((text, place) => text === exact[place])) digits += 1;
  return shown(digits);
}

// A scale maps values to pixels and knows its ticks; `most` bounds how many there are.
function linearScale(low, high, start, end, most) {
  const span = high - low || 1;
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * (1 - 1e-9));
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9); tick * step <= high + 1e-9 * span; tick += 1) ticks.push(tick * step);
  const at = (value) => start + ((value - low) / span) * (end - start);
  return { at, ticks };
}

function logScale(low, high, start, end, most) {
  const [first, last] = [Math.log10(low), Math.log10(high)];
  const span = last - first || 1;
  const at = (value) => start + ((Math.log10(value) - first) / span) * (end - start);
  for (const [digits, stride] of [[[1, 2, 3, 5, 7], 1], [[1, 2, 5], 1], [[1, 3], 1], [[1], 1], [[1], 2], [[1], 3]]) {
    const ticks = [];
    for (let power = Math.floor(first); power <= Math.ceil(last); power += 1) {
      if (power % stride) continue;
      for (const digit of digits) {
        const value = digit * 10 ** power;
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push(value);
      }
    }
    if (ticks.length <= most) return { at, ticks };
  }
  return { at, ticks: [] };
}

function extent(values) {
  return [Math.min(...values), Math.max(...values)];
}

// The frame of a chart: grid lines, tick labels and titles.
function frame(svg, box, x, y, units, titles) {
  const { left, top, right, bottom } = box;
  const [textsX, textsY] = [tickTexts(x.ticks, units.x), tickTexts(y.ticks, units.y)];
  y.ticks.forEach((tick, place) => {
    svg.append(shape("path", { class: "grid", d: `M${left} ${y.at(tick).toFixed(1)}H${right}` }));
    svg.append(shape("text", { x: left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, textsY[place]));
  });
  x.ticks.forEach((tick, place) => {
    svg.append(shape("path", { class: "grid", d: `M${x.at(tick).toFixed(1)} ${bottom}v5` }));
    svg.append(shape("text", { x: x.at(tick), y: bottom + 19, "text-anchor": "middle" }, textsX[place]));
  });
  svg.append(shape("text", { class: "axis-title", x: right, y: bottom + 38, "text-anchor": "end" }, titles.x));
  svg.append(shape("text", { class: "axis-title", x: 0, y: 12 }, titles.y));
}

// lines: [{x, y, series or look, name, dots}]; draws into `holder`.
function lineChart(holder, title, lines, options) {
  const width = Math.max(260, holder.clientWidth || 320);
  const height = Math.round(Math.min(300, Math.max(210, width * 0.62)));
  const box = { left: 48, top: 28, right: width - 10, bottom: height - 46 };
  const xs = lines.flatMap((line) => line.x);
  const ys = lines.flatMap((line) => line.y).filter((value) => value !== null);
  if (!xs.length || !ys.length) return;
  const [lowX, highX] = options.xRange || extent(xs);
  let [lowY, highY] = extent(ys);
  if (!options.logY) [lowY, highY] = [0, Math.max(highY * 1.05, options.leastY || 1e-9)];
  const x = (options.logX ? logScale : linearScale)(lowX, highX, box.left, box.right, width / 70);
  const y = (options.logY ? logScale : linearScale)(lowY, highY, box.bottom, box.top, 6);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  if (options.band) {
    const [low, high] = options.band;
    svg.append(shape("rect", { class: "band", x: box.left, width: box.right - box.left, y: y.at(high), height: y.at(low) - y.at(high) }));
  }
  frame(svg, box, x, y, { x: options.unitX, y: options.unitY }, { x: options.x, y: options.y });
  for (const line of lines) {
    const points = line.x.map((value, i) => [value, line.y[i]]).filter(([, value]) => value !== null);
    const look = line.series === undefined ? line.look : `series-${line.series} ${line.look || ""}`;
    if (line.dots) {
      for (const [a, b] of points) svg.append(shape("circle", { class: `dot ${look}`, cx: x.at(a), cy: y.at(b), r: 3.5 }));
    } else {
      const path = points.map(([a, b]) => `${x.at(a).toFixed(1)} ${y.at(b).toFixed(1)}`).join("L");
      svg.append(shape("path", { class: `line ${look}`, d: `M${path}` }));
    }
  }
  const keys = element("ul", { class: "keys" });
  const named = new Map(lines.filter((line) => line.name).map((line) => [line.name, line]));
  for (const [name, line] of named) {
    const look = line.series === undefined ? line.look : `series-${line.series} ${line.look || ""}`;
    const sample = line.dots
      ? shape("circle", { class: `dot ${look}`, cx: 11, cy: 6, r: 3.5 })
      : shape("path", { class: `line ${look}`, d: "M1 6H21" });
    const swatch = shape("svg", { width: 22, height: 12, viewBox: "0 0 22 12", "aria-hidden": "true" }, sample);
    keys.append(element("li", {}, swatch, element("span", {}, name)));
  }
  const figure = element("figure", { class: "line-chart" });
  if (title) figure.append(element("h3", {}, title));
  figure.append(svg, keys);
  holder.replaceChildren(figure);
}
