// What every page can do: read a point, sort tables, change the theme, go to a section.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const holder = byId("chart");
const tooltip = byId("tooltip");

const AXES = {
  params: { title: "parameters", unit: "count" },
  mult_adds: { title: "mult-adds, as executed", unit: "count" },
  bytes: { title: "bytes on disk", unit: "B" },
  latency: { title: "latency of one image", unit: "ms" },
};

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

function swatch(name, look) {
  const mark = shape("path", { class: "mark", d: marker(name, 4.5), transform: "translate(8 8)" });
  return shape("svg", { width: 16, height: 16, viewBox: "0 0 16 16", class: `point ${look}`, "aria-hidden": "true" }, mark);
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

document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTooltip(); });
labelTheme();
