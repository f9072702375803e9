"use strict";
const panels = [];
for (const one of DATA.panels) {
  const shades = one.events.map(event => ({ from: event.start, to: event.end, label: `${one.sensor}: severity ${event.severity.toFixed(1)}` }));
  panels.push({ title: one.series ? `${one.sensor} · ${one.channel}` : `${one.sensor}: ${one.problem || "no data"}`, height: 92, shades,
    lines: one.series ? [{ series: one.series, colour: "series", label: one.sensor }] : [] });
  if (one.score) panels.push({ title: "score", height: 44, shades, zero: true, gaps: one.score.gaps,
    unit: one.score.threshold.v.find(v => v !== null && v > 0) || 1,
    lines: [{ series: one.score.threshold, colour: "threshold", dash: [5, 4], label: `${one.sensor}, threshold` },
      { series: one.score.score, colour: "score", label: `${one.sensor}, score` }] });
}
const chart = new TimeChart($("chart"), { panels, from: DATA.window[0], to: DATA.window[1], label: "sensors side by side", changed: tellRange });
function tellRange() { $("range").replaceChildren(timeElement(chart.from), " to ", timeElement(chart.to), ` · ${DATA.zone}`); }
zoomButtons(chart);
$("names").replaceChildren(...DATA.panels.map(one => el("li", {}, el("a", { href: "/sensor?" + new URLSearchParams({ id: one.sensor }) }, one.sensor),
  ` · ${one.events.length} event${one.events.length === 1 ? "" : "s"}`)));
$("legend").replaceChildren(legendEntry("series", "observed", "line"), legendEntry("score", "score", "line"),
  legendEntry("threshold", "threshold", "line dash"), legendEntry("event", "event, from its start to its end"), legendEntry("", "no score", "hatched"));
tellRange();
document.body.dataset.ready = "yes";
