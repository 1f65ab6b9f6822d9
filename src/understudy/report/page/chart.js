// The chart of error against cost.

// Indices of the points that no other beats in both cost and error, by rising cost.
function paretoFront(points) {
  const order = points.map((_, i) => i).sort((a, b) => points[a].x - points[b].x || points[a].y - points[b].y || a - b);
  const kept = [];
  let best = Infinity;
  for (const i of order) {
    const last = points[kept[kept.length - 1]];
    if (points[i].y < best || (last && last.x === points[i].x && last.y === points[i].y)) {
      kept.push(i);
      best = points[i].y;
    }
  }
  return kept;
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Puts each label near its point where it covers neither a marker nor another label, or leaves it out.
function placeLabels(svg, items, obstacles, bounds) {
  const placed = [];
  for (const { text, x, y } of items) {
    const label = shape("text", { class: "label" }, text);
    svg.append(label);
    const { width, height } = label.getBBox();
    let found = null;
    search: for (const distance of [8, 13, 20, 30, 42]) {
      for (const [across, down] of [[1, -1], [1, 1], [-1, 1], [-1, -1], [0, -1], [0, 1], [1, 0], [-1, 0]]) {
        const reach = across && down ? distance * 0.75 : distance;
        const left = x + across * reach - (across < 0 ? width : across ? 0 : width / 2);
        const top = y + down * reach - (down < 0 ? height : down ? 0 : height / 2);
        const box = { left, top, right: left + width, bottom: top + height };
        const inside = left >= bounds.left && box.right <= bounds.right && top >= bounds.top && box.bottom <= bounds.bottom;
        if (inside && !obstacles.concat(placed).some((other) => overlap(box, other))) {
          found = box;
          if (distance > 14) {
            const near = [Math.min(Math.max(x, left), box.right), Math.min(Math.max(y, top), box.bottom)];
            svg.append(shape("path", { class: "leader", d: `M${x} ${y}L${near[0]} ${near[1]}` }));
          }
          break search;
        }
      }
    }
    if (found) {
      label.setAttribute("x", found.left);
      label.setAttribute("y", found.bottom - height * 0.22);
      placed.push(found);
    } else {
      label.remove();
    }
  }
}

// What is drawn now: our points, then published ones, each with its place on the axes.
function visiblePoints(data, state) {
  const problem = data.problems[state.problem];
  const ours = data.groups
    .map((group, index) => ({ group, index, x: group[state.axis], y: group.error, series: group.series }))
    .filter((point) => point.group.problem === state.problem && point.x > 0 && point.y !== null)
    .filter((point) => !state.hidden.has(data.series[point.series].key));
  const published = problem.published
    .filter((point) => !state.hidden.has(`published ${point.source}`) && point[state.axis] > 0)
    .map((point) => ({ published: point, x: point[state.axis], y: point.error }));
  return { ours, published };
}

function drawChart(data, state, holder, hooks) {
  holder.replaceChildren();
  if (!data.problems.length) return;
  const { ours, published } = visiblePoints(data, state);
  const all = ours.concat(published);
  if (!all.length) {
    holder.append(element("p", { class: "lead" }, "Nothing to draw: no finished cell shown has this cost."));
    return;
  }
  const width = state.paper || Math.max(300, holder.clientWidth);
  const height = Math.round(Math.min(520, Math.max(340, width * 0.5)));
  const box = { left: 44, top: 30, right: width - 14, bottom: height - 46 };
  const axis = AXES[state.axis];
  const teacher = data.problems[state.problem].teacher;
  const reference = teacher === null ? null : data.groups[teacher].error;
  let [lowX, highX] = extent(all.map((point) => point.x));
  if (state.scale === "log") {
    const margin = Math.max(1.12, (highX / lowX) ** 0.05);
    [lowX, highX] = [lowX / margin, highX * margin];
  } else {
    [lowX, highX] = [0, highX * 1.06];
  }
  const best = paretoFront(ours).map((i) => ours[i]);
  const spread = (point) => (point.group && point.group.deviation) || 0;
  const reached = all.map((point) => point.y).concat(best.flatMap((point) => [point.y - spread(point), point.y + spread(point)]));
  let [lowY, highY] = extent(reference === null ? reached : [...reached, reference]);
  const margin = Math.max(0.08 * (highY - lowY), 0.1);
  [lowY, highY] = [Math.max(0, lowY - margin), highY + margin];
  const x = (state.scale === "log" ? logScale : linearScale)(lowX, highX, box.left, box.right, width / 75);
  const y = linearScale(lowY, highY, box.bottom, box.top, height / 60);

  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Top-1 error against ${axis.title}` });
  holder.append(svg);
  frame(svg, box, x, y, { x: axis.unit, y: "" }, { x: `${axis.title}${state.scale === "log" ? ", log" : ""}`, y: "top-1 test error, %" });
  const obstacles = all.map((point) => {
    const [px, py] = [x.at(point.x), y.at(point.y)];
    const size = point.group && data.series[point.series].marker === "star" ? 10 : 6;
    return { left: px - size, right: px + size, top: py - size, bottom: py + size };
  });
  if (reference !== null) {
    const level = y.at(reference);
    svg.append(shape("path", { class: "reference", d: `M${box.left} ${level.toFixed(1)}H${box.right}` }));
    const text = shape("text", { class: "reference-text", x: box.left + 6, y: level - 6 }, `teacher, ${formatNumber(reference, "%")}`);
    svg.append(text);
    const { x: left, y: top, width: w, height: h } = text.getBBox();
    obstacles.push({ left, top, right: left + w, bottom: top + h });
    obstacles.push({ left: box.left, right: box.right, top: level - 1, bottom: level + 1 });
  }
  for (const point of best.filter(spread)) {
    const [across, reach] = [x.at(point.x), Math.abs(y.at(0) - y.at(spread(point)))];
    obstacles.push({ left: across - 1, right: across + 1, top: y.at(point.y) - reach, bottom: y.at(point.y) + reach });
  }
  if (best.length > 1) {
    best.slice(1).forEach((point, i) => {
      const [fromX, fromY, toX, toY] = [x.at(best[i].x), y.at(best[i].y), x.at(point.x), y.at(point.y)];
      obstacles.push({ left: fromX, right: toX, top: fromY - 1, bottom: fromY + 1 });
      obstacles.push({ left: toX - 1, right: toX + 1, top: fromY, bottom: toY });
    });
    const steps = best.slice(1).map((point) => `H${x.at(point.x).toFixed(1)}V${y.at(point.y).toFixed(1)}`).join("");
    svg.append(shape("path", { class: "front", d: `M${x.at(best[0].x).toFixed(1)} ${y.at(best[0].y).toFixed(1)}${steps}` }));
  }
  for (const point of published) {
    const mark = shape("path", { class: "mark", d: marker("circle", 4.5) });
    const target = shape("circle", { class: "target", r: 11 });
    const place = shape("g", { class: `point published-point ${point.published.source}`, transform: `translate(${x.at(point.x).toFixed(1)} ${y.at(point.y).toFixed(1)})` }, target, mark);
    svg.append(place);
    point.place = place;
  }
  // The dominated points first, so that the front lies above them.
  for (const point of [...ours].sort((a, b) => best.includes(a) - best.includes(b))) {
    const { marker: name } = data.series[point.series];
    const place = shape("g", {
      class: `point series-${point.series}${best.includes(point) ? " best" : ""}`,
      transform: `translate(${x.at(point.x).toFixed(1)} ${y.at(point.y).toFixed(1)})`,
      "data-index": point.index,
    });
    const above = y.at(point.y + spread(point)) - y.at(point.y);
    if (spread(point)) place.append(shape("path", { class: "whisker", d: `M0 ${above.toFixed(1)}V${(-above).toFixed(1)}` }));
    place.append(shape("circle", { class: "halo", r: 10 }), shape("circle", { class: "target", r: 12 }));
    place.append(shape("path", { class: "mark", d: marker(name, best.includes(point) ? 5.5 : 4.5) }));
    svg.append(place);
    point.place = place;
  }
  const named = best.map((point) => ({ text: point.group.label, x: x.at(point.x), y: y.at(point.y) }));
  const others = published.map((point) => ({ text: point.published.label, x: x.at(point.x), y: y.at(point.y) }));
  placeLabels(svg, named.concat(width > 500 ? others : []), obstacles, { ...box, left: box.left + 2, right: width });
  hooks.connect([...ours].sort((a, b) => a.x - b.x || a.y - b.y), published);
}
