"use strict";
const groups = [...new Set(DATA.rows.map(row => row[1]))].filter(Boolean).sort();
$("group").replaceChildren(el("option", { value: "" }, "every group"), ...groups.map(name => el("option", { value: name }, name)));
$("group").classList.toggle("hidden", !groups.length);
const label = column => new Date(DATA.days[column]).toLocaleDateString("en-GB", { day: "2-digit", month: DATA.days.length > 31 ? undefined : "short", timeZone: "UTC" });
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

// Events by night: a bar for each, the severe ones at its foot.
const bars = el("canvas", { role: "img", "aria-label": "events by night" });
$("nights").replaceChildren(bars);
function drawBars() {
  const width = $("nights").clientWidth, height = 150;
  if (!width) return;
  const pen = sized(bars, width, height), left = 40, bottom = 22, wide = (width - left - 8) / DATA.nights.length;
  const most = Math.max(1, ...DATA.nights.map(night => night.reduce((a, b) => a + b, 0)));
  const y = n => height - bottom - n / most * (height - bottom - 20);
  pen.textAlign = "right"; pen.textBaseline = "middle";
  for (const n of niceTicks(0, most, 3).filter(Number.isInteger)) {
    pen.strokeStyle = colour("line"); pen.beginPath(); pen.moveTo(left, y(n) + .5); pen.lineTo(width - 8, y(n) + .5); pen.stroke();
    pen.fillStyle = colour("soft"); pen.fillText(String(n), left - 6, y(n));
  }
  const every = Math.ceil(44 / wide);
  DATA.nights.forEach((night, k) => {
    let sum = 0;
    for (let level = 5; level >= 1; level--) {
      const count = night[level - 1];
      if (!count) continue;
      pen.fillStyle = colour("s" + level);
      pen.fillRect(left + k * wide + wide * .14, y(sum + count), wide * .72, y(sum) - y(sum + count));
      sum += count;
    }
    pen.textAlign = "center"; pen.fillStyle = colour("soft");
    if (k % every === 0) pen.fillText(label(k), left + (k + .5) * wide, height - 9);
    if (sum && wide > 22) { pen.fillStyle = colour("ink"); pen.fillText(String(sum), left + (k + .5) * wide, y(sum) - 8); }
  });
}
bars.addEventListener("pointermove", event => {
  const box = bars.getBoundingClientRect(), k = Math.floor((event.clientX - box.left - 40) / ((box.width - 48) / DATA.nights.length));
  if (!DATA.nights[k]) { hideTip(); return; }
  showTip(event, `${DATA.days[k]}\n${DATA.nights[k].reduce((a, b) => a + b, 0)} events`);
});
bars.addEventListener("pointerleave", hideTip);
bars.addEventListener("click", event => {
  const box = bars.getBoundingClientRect(), k = Math.floor((event.clientX - box.left - 40) / ((box.width - 48) / DATA.nights.length));
  if (DATA.days[k]) location.href = "/night?day=" + DATA.days[k];
});
redraws.push(drawBars);
new ResizeObserver(drawBars).observe($("nights"));
mapLegend($("map-legend"), DATA.rows.map(row => row[2]));
showMap();
document.body.dataset.ready = "yes";
