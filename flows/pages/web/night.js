"use strict";
const SHOWN = 40; // events at once; more on demand, so that a bad night stays smooth
let most = SHOWN;
const unique = values => [...new Set(values)].filter(Boolean).sort();
function fill(select, first, values) {
  select.replaceChildren(el("option", { value: "" }, first), ...values.map(v => el("option", { value: v }, v)));
  select.classList.toggle("hidden", values.length < (select.id === "group" ? 1 : 2));
}
fill($("group"), "every group", unique(DATA.rows.map(row => row[1])));
fill($("cause"), "every cause", unique(DATA.events.map(event => event.cause)));
fill($("least"), "every severity", ["2", "3", "5", "8"]);
[...$("least").options].slice(1).forEach(option => { option.textContent = `severity ${option.value} and more`; });

const linkTo = (sensor, event) => {
  const link = DATA.links[sensor];
  if (!link) return null;
  if (!event) return link;
  const room = Math.max(event.end - event.start, 3 * HOUR);
  return `${link}#${event.start - room},${event.end + room}`;
};
const named = (sensor, event) => linkTo(sensor, event) ? el("a", { href: linkTo(sensor, event) }, sensor) : el("span", {}, sensor);

// -- events

function chosen() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  return DATA.events.filter(event => {
    const text = [event.sensor, event.group, event.cause, event.verdict, event.id, ...event.channels].join(" ").toLowerCase();
    return words.every(word => text.includes(word)) && (!$("group").value || event.group === $("group").value)
      && (!$("cause").value || event.cause === $("cause").value) && event.severity >= Number($("least").value || 0)
      && (!$("open-only").checked || event.open);
  });
}
// A picture is drawn when it comes into sight.
const inSight = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting).forEach(entry => {
  inSight.unobserve(entry.target);
  drawPicture(entry.target);
  if (DATA.live) askExpected(entry.target.event.sensor);
}), { rootMargin: "200px" });
const drawn = new Set();
// The live view shows the series at once and asks for the expected normal of a sensor afterwards.
const asked = new Set();
async function askExpected(sensor) {
  if (asked.has(sensor)) return;
  asked.add(sensor);
  const answer = await fetch("/api/pictures?" + new URLSearchParams({ id: sensor, day: DATA.day }));
  if (!answer.ok) return;
  const pictures = await answer.json();
  DATA.events.filter(event => pictures[event.id]).forEach(event => { event.picture = pictures[event.id]; });
  drawn.forEach(canvas => { if (canvas.event.sensor === sensor) drawPicture(canvas); });
  showPictureLegend();
  document.body.dataset.expected = "yes";
}
function drawPicture(canvas) {
  const event = canvas.event, picture = event.picture, width = canvas.clientWidth || 260, height = 68, left = 46;
  const pen = sized(canvas, width, height + (event.channels.length > 1 ? 14 : 0)), values = unpack(picture.v);
  drawn.add(canvas);
  const span = picture.to - picture.from, time = (k, count) => picture.from + span * (k + .5) / count;
  const x = t => left + (t - picture.from) / span * (width - left - 2);
  const low = picture.v.low, high = picture.v.high;
  const y = v => height - 6 - (v - low) / (high - low || 1) * (height - 14);
  pen.fillStyle = colour("soft"); pen.textAlign = "right"; pen.textBaseline = "middle";
  const digits = Math.max(3, Math.min(6, 2 + Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low || 1)))));
  for (const v of [low, high]) pen.fillText(numberText(v, digits), left - 6, y(v));
  pen.fillStyle = colour("event"); pen.globalAlpha = .18;
  const a = x(Math.max(event.start, picture.from)), b = x(Math.min(event.end, picture.to));
  pen.fillRect(a, 0, Math.max(2, b - a), height);
  pen.globalAlpha = 1; pen.fillRect(a, 0, Math.max(2, b - a), 2);
  const pairs = packed => unpack(packed).map((v, k, list) => [time(k, list.length), v]);
  if (picture.mid) {
    pen.fillStyle = colour("expected"); pen.globalAlpha = .25;
    if (picture.low) area(pen, pairs(picture.low), pairs(picture.high), x, y);
    pen.globalAlpha = 1; pen.strokeStyle = colour("expected"); pen.lineWidth = 1.3; pen.setLineDash([4, 3]);
    line(pen, pairs(picture.mid), x, y);
    pen.setLineDash([]);
  }
  pen.strokeStyle = colour("series"); pen.lineWidth = 1.2;
  line(pen, values.map((v, k) => [time(k, values.length), v]), x, y);
  if (event.channels.length > 1) { // which of them is drawn
    pen.textAlign = "left"; pen.fillStyle = colour("soft");
    pen.fillText(fitted(pen, picture.channel, width - left), left, height + 8);
  }
}
function eventRow(event) {
  const canvas = event.picture ? el("canvas", { role: "img", "aria-label": `${event.picture.channel} around the event` }) : null;
  if (canvas) { canvas.event = event; inSight.observe(canvas); }
  const length = lengthText(event.end - event.start);
  return el("article", { class: "event", tabindex: -1, "data-sensor": event.sensor },
    severityBadge(event.severity),
    el("div", { class: "who" }, el("div", { class: "name" }, named(event.sensor, event)),
      el("div", { class: "small soft" }, event.group ? event.group + " · " : "", event.cause,
        event.open ? el("span", { class: "badge open", style: { marginLeft: "6px" } }, "still open") : null)),
    el("div", { class: "picture" }, canvas || el("span", { class: "small soft" }, "no picture")),
    el("div", { class: "facts" }, el("div", {}, el("b", {}, timeElement(event.start)), " to ",
      el("b", {}, timeElement(event.end)), ` · ${length}`),
      el("div", {}, "peak ", timeElement(event.peak)),
      event.channels.length ? el("div", { class: "name" }, (event.channels.length > 1 ? "channels: " : "channel: ") + event.channels.join(", ")) : null,
      el("div", { class: "small soft" }, "event ", el("code", {}, event.id),
        event.verdict ? el("span", { class: "badge verdict", style: { marginLeft: "6px" } }, event.verdict) : null)));
}
function showEvents() {
  const found = chosen();
  drawn.clear();
  $("events").replaceChildren(...found.slice(0, most).map(eventRow));
  if (!found.length) $("events").append(el("p", { class: "soft" }, DATA.events.length ? "No event matches."
    : DATA.scored ? "A quiet night: no events." : `This night is not scored; paano score --day ${DATA.day} scores it.`));
  $("shown").textContent = found.length === DATA.events.length ? `${found.length}, the most severe first`
    : `${found.length} of ${DATA.events.length}`;
  $("more").classList.toggle("hidden", found.length <= most);
  $("more").textContent = `show ${Math.min(200, found.length - most)} more`;
}
function showMap() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean), group = $("group").value;
  let rows = DATA.rows.filter(([sensor, its]) => (!group || its === group)
    && words.every(word => `${sensor} ${its}`.toLowerCase().includes(word)));
  if (words.length && !rows.length) rows = DATA.rows.filter(([, its]) => !group || its === group);
  const order = $("order").value;
  if (order !== "worst") rows = [...rows].sort((a, b) => (order === "group" ? a[1].localeCompare(b[1]) : 0) || a[0].localeCompare(b[0]));
  map.set(rows.map(([name, , cells, worst]) => ({ name, cells, worst, link: DATA.links[name] })));
  $("map-shown").textContent = `${rows.length} sensor${rows.length === 1 ? "" : "s"}, hours in ${DATA.zone}`;
}
const hours = Math.round((DATA.window[1] - DATA.window[0]) / HOUR), hourAt = column => DATA.window[0] + column * HOUR;
const MARKS = { 0: "quiet", x: "no data", m: "no model", u: "muted", p: "not scored" };
const map = new CellMap($("map"), {
  columns: hours, labels: Array.from({ length: hours }, (_, k) => formatTime(hourAt(k), "hour")), rows: [],
  open: (row, column) => {
    const events = DATA.events.filter(event => event.sensor === row.name), at = hourAt(column);
    const link = linkTo(row.name, events.find(event => column >= 0 && event.start < at + HOUR && event.end >= at) || events[0]);
    if (link) location.href = link;
  },
  explain: (row, column) => column < 0 ? row.name : [row.name, `${formatTime(hourAt(column))} (${utcText(hourAt(column))})`,
    MARKS[row.cells[column]] || `severity ${levelText(Number(row.cells[column]))}`].join("\n"),
});
mapLegend($("map-legend"), DATA.rows.map(row => row[2]));
const showPictureLegend = () => $("picture-legend").replaceChildren(legendEntry("series", "observed", "line"), ...(DATA.events.some(e => e.picture && e.picture.mid)
  ? [legendEntry("expected", "expected normal", "line dash")] : []), legendEntry("event", "event"));
showPictureLegend();

for (const id of ["search", "group", "least", "cause", "open-only"]) $(id).addEventListener("input", () => { most = SHOWN; showEvents(); showMap(); });
$("order").addEventListener("input", showMap);
$("more").addEventListener("click", () => { most += 200; showEvents(); });
redraws.push(() => { drawn.forEach(drawPicture); });
document.addEventListener("keydown", event => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...document.querySelectorAll(".event")], at = rows.indexOf(document.activeElement.closest(".event"));
  if (event.key === "/") { $("search").focus(); event.preventDefault(); }
  else if (event.key === "m") { $("map").focus(); }
  else if (event.key === "j" || event.key === "k") {
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + (event.key === "j" ? 1 : at < 0 ? 1 : -1)))];
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  } else if (event.key === "Enter" && at >= 0 && document.activeElement === rows[at]) {
    const link = rows[at].querySelector("a");
    if (link) link.click();
  }
});
showEvents();
showMap();
document.body.dataset.ready = "yes";
