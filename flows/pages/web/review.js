"use strict";
function show() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = DATA.rows.filter(row => words.every(word => `${row.sensor} ${row.why} ${row.detail}`.toLowerCase().includes(word)));
  const number = (value, digits) => value === null ? "–" : value.toFixed(digits);
  $("rows").replaceChildren(
    el("thead", {}, el("tr", {}, ...["sensor", "why", "in detail", "version", "review test VUS-PR", "alarms per 30 days", "sheet"].map((t, k) =>
      el("th", { class: k > 2 && k < 6 ? "right" : "" }, t)))),
    el("tbody", {}, ...found.slice(0, 500).map(row => el("tr", {},
      el("td", { class: "name" }, el("a", { href: "/sensor?" + new URLSearchParams({ id: row.sensor }) }, row.sensor)),
      el("td", {}, el("span", { class: "badge" }, row.why)), el("td", { class: "detail" }, row.detail),
      el("td", { class: "right" }, row.version === null ? "–" : String(row.version)),
      el("td", { class: "right" }, number(row.vus_pr, 3)), el("td", { class: "right" }, number(row.alarms, 1)),
      el("td", {}, row.version === null ? "" : el("a", { href: "/review/sheet?" + new URLSearchParams({ id: row.sensor, version: row.version }) }, "open"))))));
  if (!found.length) $("rows").append(el("tbody", {}, el("tr", {}, el("td", { colspan: 7, class: "soft" }, "nothing needs a look"))));
  $("shown").textContent = found.length > 500 ? `500 of ${found.length}, the worst first` : `${found.length}, the worst first`;
}
$("search").addEventListener("input", show);
show();
document.body.dataset.ready = "yes";
