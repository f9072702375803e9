"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const measures = Object.keys(D.titles), $ = id => document.getElementById(id);
const others = Object.keys(D.overall).filter(name => name !== "paano");
const names = { paano: "PaAno", pca: "sub-sequence PCA", kmeans: "sub-sequence k-means", iforest: "isolation forest" };
const brief = { pca: "PCA", kmeans: "k-means", iforest: "isol. forest" };
const colours = { paano: "#2f6fde", pca: "#e08a1e", kmeans: "#12805c", iforest: "#8a5cd1" };
const number = v => v === null || v === undefined ? "–" : v.toFixed(3);
const withSd = (row, m) => number(row[m]) + (row[m + "_sd"] != null
  ? ` <span class="sd">±${row[m + "_sd"].toFixed(3)}</span>` : "");
const escape = t => String(t).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const short = file => file.replace(/\.csv$/, "");
const font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 12.5, color: "#1d2433" };
const config = { responsive: true, displaylogo: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };

// The figures on top.
const all = D.overall.paano;
$("lead").innerHTML += ` · ${all.files} series · ${all.seeds} seed${all.seeds > 1 ? "s" : ""}` +
  (D.cut ? " · only the first rows of some series (--max-rows)" : "");
$("cards").innerHTML = measures.map((m, i) => {
  const best = others.map(o => [D.overall[o][m], brief[o]]).sort((a, b) => b[0] - a[0])[0];
  const spread = all[m + "_sd"] != null ? ` ±${all[m + "_sd"].toFixed(3)}` : "";
  return `<div class="card ${i ? "" : "first"}"><span class="sub">${D.titles[m]}</span><b>${number(all[m])}</b>` +
    `<span class="sub">${spread || "mean over files"}${best ? `<br>${best[1]} ${number(best[0])}` : ""}</span></div>`;
}).join("") + `<div class="card"><span class="sub">seconds per file</span><b>${(all.fit_s + all.score_s).toFixed(1)}</b>` +
  `<span class="sub">train ${all.train_s.toFixed(1)} · bank ${all.bank_s.toFixed(1)} · score ` +
  `${all.score_s.toFixed(1)}</span></div>`;

// The table of files.
let sortBy = "file", down = false, shown = D.files[0].file;
const titled = measures.map(m => [m, D.titles[m]]);
const columns = [["file", "file"], ["subset", "subset"], titled[0],
  ...others.map(o => ["base:" + o, `VUS-PR<br>${brief[o]}`]), ...titled.slice(1), ["fit_s", "fit s"], ["score_s", "score s"]];
const cell = (row, key) => key.startsWith("base:") ? row.baselines[key.slice(5)] : row[key];
function drawFiles() {
  const rows = [...D.files].sort((a, b) => {
    const x = cell(a, sortBy), y = cell(b, sortBy);
    return (x == null) - (y == null) || (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });
  const text = (row, key) => {
    const v = cell(row, key);
    if (key === "file") return escape(short(v));
    if (key === "subset") return escape(v);
    if (key === "vus_pr") return `<span class="bar"><i style="width:${100 * (v || 0)}%"></i></span>${withSd(row, key)}`;
    if (key.endsWith("_s")) return v.toFixed(1);
    return key.startsWith("base:") ? number(v) : withSd(row, key);
  };
  $("files").innerHTML = "<thead><tr>" + columns.map(([k, t]) =>
      `<th data-k="${k}" class="${k === sortBy ? "sorted" : ""}">${t}${k === sortBy ? (down ? " ↓" : " ↑") : ""}</th>`)
    .join("") + "</tr></thead><tbody>" + rows.map(row =>
      `<tr class="file ${row.file === shown ? "shown" : ""}" data-file="${escape(row.file)}">` +
      columns.map(([k]) => `<td>${text(row, k)}</td>`).join("") + "</tr>").join("") + "</tbody>";
}
$("files").addEventListener("click", event => {
  const head = event.target.closest("th"), row = event.target.closest("tr.file");
  if (head) { down = sortBy === head.dataset.k ? !down : head.dataset.k !== "file" && head.dataset.k !== "subset";
              sortBy = head.dataset.k; drawFiles(); }
  else if (row) { show(row.dataset.file); $("series").scrollIntoView({ behavior: "smooth", block: "center" }); }
});

// Subsets, overall, and the published figures beside them.
const line = (name, count, cells, kind = "") => `<tr class="${kind}"><td>${name}</td><td>${count}</td>` +
  measures.map(m => `<td>${cells(m)}</td>`).join("") + "</tr>";
$("subsets").innerHTML = "<thead><tr><th>subset</th><th>series</th>" +
  measures.map(m => `<th>${D.titles[m]}</th>`).join("") + "</tr></thead><tbody>" +
  D.subsets.map(row => line(escape(row.name), row.files, m => withSd(row, m)) + (row.published
    ? line("published", row.published.series, m => number(row.published[m]), "published") : "")).join("") +
  line("Overall, PaAno", all.files, m => withSd(all, m), "total") +
  (all.files > 1 ? line("standard error between files", "", m => number(all.standard_error[m]), "error") : "") +
  others.map(o => line("Overall, " + names[o], D.overall[o].files, m => number(D.overall[o][m]))).join("") +
  D.published.map(p => line("published: PaAno on " + p.collection, p.series, m => number(p.paano[m]), "published") +
    line("published: next best on " + p.collection, p.series,
      m => `${p.best[m].value.toFixed(2)} ${p.best[m].who}`, "published")).join("") + "</tbody>";

// The box plot.
const boxes = measures.map(m => ({ type: "box", name: D.titles[m], y: D.files.map(f => f[m]), boxpoints: "all",
  jitter: .5, pointpos: 0, boxmean: true, line: { color: colours.paano, width: 1.5 }, fillcolor: "rgba(47,111,222,.10)",
  marker: { size: 5, opacity: .55, color: colours.paano }, text: D.files.map(f => short(f.file)),
  hovertemplate: "%{text}<br>%{y:.3f}<extra></extra>" }));
others.forEach(o => boxes.push({ type: "box", name: "VUS-PR<br>" + brief[o], y: D.files.map(f => f.baselines[o]),
  boxpoints: "all", jitter: .5, pointpos: 0, boxmean: true, line: { color: colours[o], width: 1.5 },
  fillcolor: "rgba(152,162,179,.10)", marker: { size: 5, opacity: .55, color: colours[o] },
  text: D.files.map(f => short(f.file)), hovertemplate: "%{text}<br>%{y:.3f}<extra></extra>" }));
Plotly.newPlot("box", boxes, { font, height: 400, margin: { l: 44, r: 10, t: 10, b: 50 }, showlegend: false,
  xaxis: { tickangle: 0 },
  yaxis: { range: [-.02, 1.02], gridcolor: "#eceef2", zeroline: false }, paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)" }, { ...config, displayModeBar: false });

// One series with its labels and scores.
$("file").innerHTML = D.files.map(f => `<option value="${escape(f.file)}">${escape(short(f.file))}</option>`).join("");
function show(file) {
  shown = file;
  const p = D.pictures[file], row = D.files.find(f => f.file === file), channels = Object.keys(p.series);
  $("file").value = file;
  $("about").textContent = `VUS-PR ${number(row.vus_pr)} · ${p.rows.toLocaleString("en")} rows · trained on ` +
    `${p.train.toLocaleString("en")} · ${p.anomalies} anomal${p.anomalies === 1 ? "y" : "ies"} · window ${p.window}` +
    (p.channels > 1 ? ` · ${channels.length} of ${p.channels} channels shown` : "");
  const panels = channels.length + 1, gap = .03, scoreShare = .34;
  const share = (1 - scoreShare - gap * (panels - 1)) / channels.length;
  const traces = [], layout = { font, height: 300 + 90 * panels, margin: { l: 56, r: 12, t: 28, b: 36 },
    legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom" }, hovermode: "x", paper_bgcolor: "rgba(0,0,0,0)",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#98a2b3", activecolor: "#344054" },
    plot_bgcolor: "rgba(0,0,0,0)", shapes: [{ type: "rect", xref: "x", yref: "paper", x0: -.5, x1: p.train - .5,
      y0: 0, y1: 1, fillcolor: "#98a2b3", opacity: .10, line: { width: 0 }, layer: "below" }],
    xaxis: { title: { text: "row" }, anchor: "y", range: [-.5, p.rows - .5], gridcolor: "#eceef2", zeroline: false },
  };
  // All labels are one path over the whole height: thousands of shapes would be slow.
  const band = ([a, b]) => `M${a - .5},0L${a - .5},1L${b + .5},1L${b + .5},0Z`;
  layout.shapes.push({ type: "path", xref: "x", yref: "paper", path: p.bands.map(band).join(""), layer: "below",
    fillcolor: "rgba(217,45,32,.16)", line: { width: 1, color: "rgba(217,45,32,.30)" } });
  traces.push({ x: [null], y: [null], mode: "markers", marker: { symbol: "square", size: 11, color: "rgba(217,45,32,.30)" },
    name: "labelled anomaly", hoverinfo: "skip" });
  Object.entries(p.scores).forEach(([name, s]) => traces.push({ x: s.x, y: s.y, mode: "lines", yaxis: "y",
    name: "score " + (names[name] || name), line: { width: 1.4, color: colours[name] || "#555" },
    visible: name === "paano" ? true : "legendonly", hovertemplate: "%{y:.3f}" }));
  layout.yaxis = { domain: [0, scoreShare], title: { text: "score" }, range: [-.03, 1.05], gridcolor: "#eceef2",
    zeroline: false };
  channels.forEach((c, i) => {
    const axis = "y" + (i + 2), top = 1 - i * (share + gap);
    layout["yaxis" + (i + 2)] = { domain: [top - share, top], anchor: "x", gridcolor: "#eceef2", zeroline: false,
      title: { text: p.channels > 1 ? "channel " + c : "value" } };
    traces.push({ x: p.series[c].x, y: p.series[c].y, yaxis: axis, mode: "lines", showlegend: false,
      name: p.channels > 1 ? "channel " + c : "value", line: { width: 1, color: "#344054" },
      hovertemplate: "%{y:.4g}" });
  });
  Plotly.react("series", traces, layout, config);
  drawFiles();
}
$("file").addEventListener("change", event => show(event.target.value));
const step = by => { const i = D.files.findIndex(f => f.file === shown), n = D.files.length;
  show(D.files[(i + by + n) % n].file); };
$("before").onclick = () => step(-1);
$("after").onclick = () => step(1);
show(shown);

if (D.skipped.length) {
  $("skippedBox").hidden = false;
  $("skipped").innerHTML = D.skipped.map(reason => `<li>${escape(reason)}</li>`).join("");
}
document.body.dataset.ready = "yes";
