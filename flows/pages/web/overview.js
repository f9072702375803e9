"use strict";
const groups = [...new Set(DATA.rows.map(row => row[1]))].filter(Boolean).sort();
$("group").replaceChildren(el("option", { value: "" }, "every group"), ...groups.map(name => el("option", { value: name }, name)));
$("group").classList.toggle("hidden", !groups.length);
const label = column => new Date(DATA.days[column]).toLocaleDateString("en-GB", { day: "2-digit", month: "short", timeZone: "UTC" });
const MARKS = { 0: "quiet", x: "no data", m: "skipped: no model, or too little data", u: "muted", p: "not scored" };
const map = new CellMap($("map"), {
  columns: DATA.days.length, labels: DATA.days.map((_, k) => label(k)), rows: [],
  open: (row, column) => {
    const day = DATA.days[column >= 0 ? column : DATA.days.length - 1];
    const first = new Date(Date.parse(day) - DAY).toISOString().slice(0, 10);
    location.href = "/sensor?" + new URLSearchParams({ id: row.name, since: first, until: day });
  },
  explain: (row, column) => column < 0 ? row.name : [row.name, DATA.days[column],
    MARKS[row.cells[column]] || `severity ${levelText(Number(row.cells[column]))}`].join("\n"),
});
function showMap() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), group = $("group").value;
  let rows = DATA.rows.filter(([sensor, its]) => (!group || its === group) && words.every(w => `${sensor} ${its}`.toLowerCase().includes(w)));
  if ($("order").value === "name") rows = [...rows].sort((a, b) => a[0].localeCompare(b[0]));
  map.set(rows.map(([name, , cells, worst]) => ({ name, cells, worst, link: true })));
  $("map-shown").textContent = `${rows.length} sensors`;
}
for (const id of ["search", "group", "order"]) $(id).addEventListener("input", showMap);
document.addEventListener("keydown", event => {
  if (event.key === "/" && !event.target.matches("input, select")) { $("search").focus(); event.preventDefault(); }
});

// Events by night: a bar for each, which leads to that night; the severe ones at its foot.
const sums = DATA.nights.map(night => night.reduce((a, b) => a + b, 0)), most = Math.max(1, ...sums);
const every = Math.ceil(52 * DATA.days.length / $("nights").clientWidth); // a label is about 50 pixels wide
$("nights").replaceChildren(...DATA.nights.map((night, k) => {
  const said = `${DATA.days[k]}: ${sums[k]} event${sums[k] === 1 ? "" : "s"}`;
  return el("a", { href: "/night?day=" + DATA.days[k], title: said, "aria-label": said }, el("b", {}, sums[k] || null),
    night.map((count, level) => el("i", { style: { height: `${100 * count / most}px`, background: `var(--s${level + 1})` } })),
    el("span", {}, k % every ? "" : label(k)));
}));
mapLegend($("map-legend"), DATA.rows.map(row => row[2]));
showMap();
document.body.dataset.ready = "yes";
