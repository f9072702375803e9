"use strict";
const ink = part => part.replaceAll("_", "-"), partText = part => "part " + part.replaceAll("_", " ");
/** A channel with its rank among those that made the events, and its share in the worst of them that names it. */
function titleOf(channel) {
  if (!channel.rank || (DATA.channels.length === 1 && !DATA.left_out)) return channel.name;
  const event = DATA.events.find(each => each.channels.includes(channel.name)), share = shareOf(event, channel.name);
  return `${channel.name} · ${["largest", "second", "third"][channel.rank - 1] || channel.rank + "th"} share${share ? `, ${share} of the event of ${formatTime(event.start)}` : ""}`;
}
function shareOf(event, channel) {
  const share = ((event && DATA.shares[event.id]) || {})[channel];
  return share === undefined ? "" : `${Math.round(100 * share)} %`;
}
const chart = (() => {
  const panels = [];
  for (const channel of DATA.channels) {
    const lines = [{ series: channel.series, colour: "series", label: channel.name }], bands = [];
    if (channel.expected) {
      bands.push({ low: channel.expected.low, high: channel.expected.high, colour: "expected" });
      lines.unshift({ series: channel.expected.mid, colour: "expected", dash: [4, 3], label: channel.name + ", expected" });
    }
    panels.push({ title: titleOf(channel), lines, bands, gaps: channel.gaps,
      height: DATA.channels.length === 1 ? 210 : DATA.channels.length < 4 ? 130 : 84 });
  }
  if (DATA.score) {
    const lines = Object.entries(DATA.parts).map(([name, series]) => ({ series, colour: ink(name), width: 1, label: partText(name) }));
    lines.push({ series: DATA.score.threshold, colour: "threshold", dash: [5, 4], label: "threshold" });
    lines.push({ series: DATA.score.score, colour: "score", width: 1.6, label: "score" });
    // Scores span decades: an axis that is linear up to the threshold and logarithmic above it shows all of them.
    const unit = DATA.score.threshold.v.find(v => v !== null && v > 0) || 1;
    panels.push({ title: "score", lines, zero: true, height: 170, gaps: DATA.score.gaps, unit });
  }
  const text = event => `event, severity ${event.severity.toFixed(1)}${event.cause ? ", " + event.cause : ""}`;
  const marks = DATA.versions.map(v => ({ at: v.at, label: `version ${v.version}`, colour: "version" }));
  const made = new TimeChart($("chart"), {
    panels, from: DATA.before, to: DATA.window[1], marks, before: DATA.window[0],
    shades: DATA.events.map(e => ({ from: e.start, to: e.end, label: text(e) })),
    label: `series and score of ${DATA.sensor}`,
    changed: (from, to) => { tellRange(); history.replaceState(null, "", `#${Math.round(from)},${Math.round(to)}`); refine(from, to); },
  });
  return made;
})();

function tellRange() {
  $("range").replaceChildren(timeElement(chart.from), " to ", timeElement(chart.to), ` · ${DATA.zone}`);
}
// The live view has more than the page carries: a stretch that was thinned is asked for again when it is looked at.
let asked = 0;
async function refine(from, to) {
  if (!DATA.live || !DATA.channels.some(channel => channel.series.i)) return;
  const number = ++asked;
  await new Promise(done => setTimeout(done, 250));
  if (number !== asked) return;
  const query = new URLSearchParams({ id: DATA.sensor, from: Math.round(from), to: Math.round(to) });
  const answer = await fetch(`/api/series?${query}`);
  if (!answer.ok || number !== asked) return;
  const fine = await answer.json();
  chart.panels.forEach((panel, k) => {
    const channel = DATA.channels[k];
    if (channel && fine.channels[channel.name]) panel.lines.find(l => l.colour === "series").series = fine.channels[channel.name];
    if (panel.title === "score" && fine.score) panel.lines.find(l => l.colour === "score").series = fine.score;
  });
  chart.draw();
}
zoomButtons(chart);

// The live view shows the page first and asks for the parts of the score and the expected normal afterwards.
async function askParts() {
  const query = new URLSearchParams({ id: DATA.sensor, since: $("since").value, until: $("until").value });
  const answer = await fetch(`/api/parts?${query}`);
  if (!answer.ok) return;
  const { parts, expected, shares, notes } = await answer.json();
  Object.assign(DATA, { parts, shares });
  chart.panels.forEach((panel, k) => {
    const channel = DATA.channels[k], band = channel && expected[channel.name];
    if (channel) panel.title = titleOf(channel);
    if (band) {
      channel.expected = band;
      panel.bands.push({ low: band.low, high: band.high, colour: "expected" });
      panel.lines.unshift({ series: band.mid, colour: "expected", dash: [4, 3], label: channel.name + ", expected" });
    }
    if (panel.title === "score") panel.lines.unshift(...Object.entries(parts).map(([name, series]) =>
      ({ series, colour: ink(name), width: 1, label: partText(name) })));
  });
  $("more").textContent += notes.map(note => " " + note).join("");
  showLegend();
  showTable();
  chart.draw();
  document.body.dataset.parts = "yes";
}
const showLegend = () => $("legend").replaceChildren(legendEntry("series", "observed", "line"), ...(DATA.channels.some(c => c.expected)
  ? [legendEntry("expected", "expected normal", "line dash"), legendEntry("expected", "its usual band")] : []),
  legendEntry("score", "score", "line"), legendEntry("threshold", "threshold", "line dash"),
  ...Object.keys(DATA.parts).map(name => legendEntry(ink(name), partText(name), "line")), legendEntry("event", "event, from its start to its end"),
  legendEntry("version", "first row of a version", "line dash"), ...(DATA.before < DATA.window[0] ? [legendEntry("line", "before the range")] : []),
  ...(DATA.channels.some(c => c.gaps.length) || (DATA.score && DATA.score.gaps.length) ? [legendEntry("", "no value, or no score", "hatched")] : []));
const scored = DATA.score || { rows: 0 };
$("more").textContent = [DATA.left_out && `${DATA.left_out} further channels are not drawn.`, scored.rows || "Nothing is scored here.",
  scored.no_model && `No model: ${scored.no_model} of ${scored.rows} rows have no score.`,
  scored.no_data && `No data: ${scored.no_data} of ${scored.rows} rows have no score.`,
  scored.provisional && `${scored.provisional} rows at the edge of the data may still change.`]
  .filter(text => typeof text === "string").map(text => " " + text).join("");

function showEvent(event) {
  const room = Math.max(event.end - event.start, 3 * HOUR);
  chart.show(event.start - room, event.end + room);
  $("chart").scrollIntoView({ block: "center" });
  $("chart").focus({ preventScroll: true });
}
const rowsOf = () => DATA.events.map(event => el("tr", {},
  el("td", {}, severityBadge(event.severity)),
  el("td", {}, el("button", { class: "button", onclick: () => showEvent(event) }, timeElement(event.start))),
  el("td", {}, event.open ? el("span", { class: "badge open" }, "still open") : timeElement(event.end)),
  el("td", {}, timeElement(event.peak)),
  el("td", { class: "right" }, lengthText(event.end - event.start)),
  el("td", {}, event.cause),
  el("td", { class: "name" }, event.channels.map(name => `${name} ${shareOf(event, name)}`.trim()).join(", ")),
  el("td", { class: "right" }, event.version === null ? "" : String(event.version))));
function showTable() {
  const rows = rowsOf();
  $("events").replaceChildren(
  el("thead", {}, el("tr", {}, ...["severity", "start", "end", "peak", "length", "cause", "channels", "version"].map((t, k) =>
    el("th", { class: k === 4 || k === 7 ? "right" : "" }, t)))),
  el("tbody", {}, ...(rows.length ? rows : [el("tr", {}, el("td", { colspan: 8, class: "soft" }, "no events in this range"))])));
}

const wanted = location.hash.slice(1).split(",").map(Number);
if (wanted.length === 2 && wanted.every(Number.isFinite) && wanted[0] < wanted[1]) chart.show(...wanted, false);
tellRange();
showLegend();
showTable();
if (DATA.live) askParts();
document.body.dataset.ready = "yes";
