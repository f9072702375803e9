"use strict";
// Shared by all pages: elements, times, colours, packed series, a chart of time that zooms and pans, a map of
// sensors. Text goes into a page as text only (textContent); no script here writes markup.

const $ = id => document.getElementById(id);
const DATA = JSON.parse($("data").textContent);

/** An element with properties and children; a string child is text. */
function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

// -- times: shown in the fleet's zone, with UTC on hover

const _formats = {};
function formatTime(ms, shape = "minute", zone = DATA.zone) {
  const key = shape + zone;
  const options = {
    minute: { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" },
    second: { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" },
    clock: { hour: "2-digit", minute: "2-digit" },
    hour: { hour: "2-digit" },
    day: { weekday: "short", day: "2-digit", month: "short" },
    date: { day: "2-digit", month: "short", year: "numeric" },
  }[shape];
  _formats[key] ??= new Intl.DateTimeFormat("en-GB", { ...options, hourCycle: "h23", timeZone: zone });
  return _formats[key].format(ms);
}
const utcText = ms => new Date(ms).toISOString().slice(0, 16).replace("T", " ") + " UTC";
const timeElement = (ms, shape) => el("time", { datetime: new Date(ms).toISOString(), title: utcText(ms) },
  formatTime(ms, shape));
function lengthText(ms) {
  const minutes = Math.round(ms / 60000);
  if (minutes < 60) return `${minutes}\u00a0min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)}\u00a0h\u00a0${String(minutes % 60).padStart(2, "0")}`;
  return `${(minutes / 1440).toFixed(1)}\u00a0days`;
}
/** The time that a clock in the zone is ahead of UTC at `ms`. */
function ahead(ms) {
  const parts = Object.fromEntries(new Intl.DateTimeFormat("en-US", { timeZone: DATA.zone, hourCycle: "h23",
    year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" })
    .formatToParts(ms).map(part => [part.type, part.value]));
  return Date.UTC(parts.year, parts.month - 1, parts.day, parts.hour, parts.minute, parts.second)
    - Math.floor(ms / 1000) * 1000;
}

// -- colours

let _style = null;
const colour = name => (_style ??= getComputedStyle(document.documentElement)).getPropertyValue("--" + name).trim();
const LEVELS = [1, 2, 3, 5, 8]; // severities at which a colour begins
const levelOf = severity => Math.max(1, LEVELS.filter(least => severity + .05 >= least).length);
const levelText = level => level === 5 ? `${LEVELS[4]} and more` : LEVELS[level] - LEVELS[level - 1] > 1
  ? `${LEVELS[level - 1]} to ${LEVELS[level]}` : String(LEVELS[level - 1]);
/** A severity as a number on its colour; the number makes the colour unnecessary. */
function severityBadge(severity) {
  const level = levelOf(severity), badge = el("span", { class: "sev", title: "1: as rare as the alarm budget " +
    "allows; each further 1 is ten times rarer" }, severity.toFixed(1));
  badge.style.background = `var(--s${level})`;
  badge.style.color = `var(--i${level})`;
  return badge;
}
const isDark = () => colour("ground").startsWith("#1");
const redraws = [];
function redrawAll() { _style = null; redraws.forEach(redraw => redraw()); }
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
function keepTheme(value) {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("paano-theme", value); } catch { /* a page from a file may not keep anything */ }
}
function setUpTheme() {
  let kept = "";
  try { kept = localStorage.getItem("paano-theme") || ""; } catch { kept = ""; }
  if (kept) keepTheme(kept);
  const button = $("theme");
  if (button) button.addEventListener("click", () => { keepTheme(isDark() ? "light" : "dark"); redrawAll(); });
}

// -- series: {t0, step, v, i?} with i the row of each value where rows were left out

const timeOf = (series, k) => series.t0 + series.step * (series.i ? series.i[k] : k);
/** Values from a text of two characters each, 0…4095 between low and high; the highest stands for missing. */
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CODE = Object.fromEntries([...ALPHABET].map((c, n) => [c, n]));
function unpack(packed) {
  const values = [], { low, high, text } = packed;
  for (let k = 0; k < text.length; k += 2) {
    const n = CODE[text[k]] * 64 + CODE[text[k + 1]];
    values.push(n === 4095 ? null : low + (high - low) * n / 4094);
  }
  return values;
}

// -- canvases

function sized(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  return pen;
}
function line(pen, points, x, y) {
  pen.beginPath();
  let on = false;
  for (const [t, v] of points) {
    if (v === null) { on = false; continue; }
    if (on) pen.lineTo(x(t), y(v)); else pen.moveTo(x(t), y(v));
    on = true;
  }
  pen.stroke();
}
function area(pen, low, high, x, y) {
  let run = [];
  const close = () => {
    if (run.length > 1) {
      pen.beginPath();
      run.forEach(([t, , h], k) => k ? pen.lineTo(x(t), y(h)) : pen.moveTo(x(t), y(h)));
      run.reverse().forEach(([t, l]) => pen.lineTo(x(t), y(l)));
      pen.fill();
    }
    run = [];
  };
  low.forEach(([t, l], k) => { if (l === null || high[k][1] === null) close(); else run.push([t, l, high[k][1]]); });
  close();
}
function hatch(pen, x, y, width, height, ink) {
  pen.save();
  pen.beginPath(); pen.rect(x, y, width, height); pen.clip();
  pen.strokeStyle = ink; pen.lineWidth = 1;
  pen.beginPath();
  for (let k = x - height; k < x + width; k += 5) { pen.moveTo(k, y + height); pen.lineTo(k + height, y); }
  pen.stroke();
  pen.restore();
}
const points = series => series.v.map((v, k) => [timeOf(series, k), v]);

// -- a tip that follows the pointer

let _tip = null;
function showTip(event, text) {
  if (!_tip) document.body.append(_tip = el("div", { class: "tip", role: "status" }));
  _tip.textContent = text;
  _tip.classList.remove("hidden");
  const box = _tip.getBoundingClientRect();
  const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
  const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
  _tip.style.left = Math.max(4, x) + "px";
  _tip.style.top = Math.max(4, y) + "px";
}
const hideTip = () => _tip && _tip.classList.add("hidden");

// -- ticks

function niceTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count), size = 10 ** Math.floor(Math.log10(raw || 1));
  const step = size * [1, 2, 5, 10].find(k => k * size >= raw);
  const ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) ticks.push(v);
  return ticks;
}
const DECADES = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6].flatMap(n => [1, 3].map(k => k * 10 ** n));
const MINUTE = 60000, HOUR = 3600000, DAY = 86400000;
const STEPS = [MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY,
  14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];
function timeTicks(from, to, count) {
  const step = STEPS.find(s => (to - from) / s <= count) || STEPS[STEPS.length - 1];
  const shift = ahead((from + to) / 2), ticks = [];
  for (let t = Math.ceil((from + shift) / step) * step - shift; t <= to; t += step) ticks.push(t);
  return [ticks, step];
}
const numberText = (v, digits = 4) => v === null ? "–" : Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3)
  ? v.toExponential(2) : String(+v.toPrecision(digits));

/**
 * A chart of panels over one axis of time. Drag to zoom, shift and drag to move, double click to see all;
 * with the keyboard: arrows move, + and − zoom, 0 shows all.
 */
class TimeChart {
  constructor(root, { panels, from, to, shades = [], marks = [], gaps = [], before = from, label = "", changed = null }) {
    Object.assign(this, { root, panels, all: [from, to], from, to, shades, marks, gaps, before, changed });
    this.left = 58; this.right = 10; this.top = marks.length ? 34 : 20; this.bottom = 24; this.gap = 22;
    this.canvas = el("canvas", { role: "img", "aria-label": label });
    root.classList.add("chart");
    root.tabIndex = 0;
    root.replaceChildren(this.canvas);
    this.pointer = null; this.drag = null;
    this.listen();
    redraws.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(root);
    this.draw();
  }
  x(t) { return this.left + (t - this.from) / (this.to - this.from) * this.inner; }
  timeAt(x) { return this.from + (x - this.left) / this.inner * (this.to - this.from); }
  show(from, to, tell = true) {
    const [first, last] = this.all, least = Math.min(last - first, 2 * MINUTE);
    let width = Math.max(least, Math.min(to - from, last - first));
    from = Math.max(first, Math.min(from, last - width));
    this.from = from; this.to = from + width;
    this.draw();
    if (tell && this.changed) this.changed(this.from, this.to);
  }
  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }
  move(share) { const by = (this.to - this.from) * share; this.show(this.from + by, this.to + by); }
  reset() { this.show(...this.all); }
  listen() {
    const at = event => event.clientX - this.canvas.getBoundingClientRect().left;
    this.root.addEventListener("keydown", event => {
      const act = { ArrowLeft: () => this.move(-.2), ArrowRight: () => this.move(.2), "+": () => this.zoom(.6),
        "=": () => this.zoom(.6), "-": () => this.zoom(1 / .6), "0": () => this.reset(), Home: () => this.reset() }[event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { act(); event.preventDefault(); }
    });
    this.canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.shiftKey) this.move(Math.sign(event.deltaY || event.deltaX) * .1);
      else this.zoom(event.deltaY < 0 ? .8 : 1.25, this.timeAt(at(event)));
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { begin: at(event), end: at(event), move: event.shiftKey, from: this.from, to: this.to };
      this.root.focus({ preventScroll: true });
    });
    this.canvas.addEventListener("pointermove", event => {
      this.pointer = at(event);
      if (this.drag) {
        this.drag.end = this.pointer;
        if (this.drag.move) {
          const by = (this.drag.begin - this.drag.end) / this.inner * (this.drag.to - this.drag.from);
          this.show(this.drag.from + by, this.drag.to + by, false);
        }
        hideTip();
      } else this.explain(event);
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      if (drag.move) { if (this.changed) this.changed(this.from, this.to); return; }
      if (Math.abs(drag.end - drag.begin) > 5)
        this.show(...[this.timeAt(drag.begin), this.timeAt(drag.end)].sort((a, b) => a - b));
      else this.draw();
    });
    this.canvas.addEventListener("pointercancel", () => { this.drag = null; });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; hideTip(); this.draw(); });
    this.canvas.addEventListener("dblclick", () => this.reset());
  }
  explain(event) {
    const t = this.timeAt(this.pointer), rows = [];
    if (this.pointer < this.left || t > this.to) { hideTip(); return; }
    for (const panel of this.panels)
      for (const part of panel.lines || []) {
        const v = nearest(part.series, t);
        if (v !== undefined) rows.push(`${part.label || panel.title}: ${numberText(v)}`);
      }
    const inside = [...this.shades, ...this.panels.flatMap(panel => panel.shades || [])].filter(s => s.from <= t && t <= s.to).map(s => s.label);
    showTip(event, [`${formatTime(t, "minute")} (${utcText(t)})`, ...rows.slice(0, 12), ...new Set(inside)].join("\n"));
  }
  draw() {
    const width = this.root.clientWidth;
    if (!width) return;
    const height = this.top + this.bottom + this.panels.reduce((sum, p) => sum + p.height + this.gap, 0) - this.gap;
    this.inner = width - this.left - this.right;
    const pen = sized(this.canvas, width, height), x = t => this.x(t);
    const [ticks, step] = timeTicks(this.from, this.to, Math.max(3, this.inner / 95));
    const bottom = height - this.bottom, right = width - this.right;
    Object.assign(this.root.dataset, { from: Math.round(this.from), to: Math.round(this.to) });

    const clipped = draw => { pen.save(); pen.beginPath(); pen.rect(this.left, 0, this.inner, height); pen.clip(); draw(); pen.restore(); };
    clipped(() => {
      for (const shade of this.shades) {
        if (shade.to < this.from || shade.from > this.to) continue;
        const a = x(shade.from), b = Math.max(x(shade.to), a + 2);
        pen.globalAlpha = .16; pen.fillStyle = colour(shade.colour || "event");
        pen.fillRect(a, this.top, b - a, bottom - this.top);
        pen.globalAlpha = .75; pen.fillRect(a, this.top - 3, b - a, 3);
        pen.globalAlpha = 1;
      }
    });
    pen.strokeStyle = colour("line"); pen.lineWidth = 1; pen.fillStyle = colour("soft"); pen.textAlign = "center";
    for (const t of ticks) {
      const at = Math.round(x(t)) + .5;
      pen.beginPath(); pen.moveTo(at, this.top); pen.lineTo(at, bottom); pen.stroke();
      const midnight = formatTime(t, "clock") === "00:00", text = formatTime(t, step >= DAY || midnight ? "day" : "clock");
      const half = pen.measureText(text).width / 2; // a label at the edge stays whole
      pen.fillText(text, Math.max(half, Math.min(at, width - half)), height - 8);
    }
    let y0 = this.top;
    for (const panel of this.panels) { this.drawPanel(pen, panel, y0, clipped, x, right); y0 += panel.height + this.gap; }
    clipped(() => {
      pen.textAlign = "left"; pen.lineWidth = 1;
      for (const mark of this.marks) {
        if (mark.at < this.from || mark.at > this.to) continue;
        pen.strokeStyle = pen.fillStyle = colour(mark.colour || "version");
        pen.setLineDash([3, 3]);
        pen.beginPath(); pen.moveTo(x(mark.at), 12); pen.lineTo(x(mark.at), bottom); pen.stroke();
        pen.setLineDash([]);
        pen.fillText(mark.label, x(mark.at) + 3, 11);
      }
      if (this.drag && !this.drag.move) {
        pen.fillStyle = colour("accent"); pen.globalAlpha = .15;
        pen.fillRect(Math.min(this.drag.begin, this.drag.end), this.top, Math.abs(this.drag.end - this.drag.begin), bottom - this.top);
        pen.globalAlpha = 1;
      } else if (this.pointer !== null) {
        pen.strokeStyle = colour("faint");
        pen.beginPath(); pen.moveTo(this.pointer, this.top); pen.lineTo(this.pointer, bottom); pen.stroke();
      }
    });
  }
  drawPanel(pen, panel, y0, clipped, x, right) {
    const seen = [];
    const note = series => { for (let k = 0; k < series.v.length; k++) {
      const t = timeOf(series, k);
      if (t >= this.from - series.step && t <= this.to + series.step && series.v[k] !== null) seen.push(series.v[k]);
    } };
    (panel.lines || []).forEach(part => note(part.series));
    (panel.bands || []).forEach(part => { note(part.low); note(part.high); });
    let low = seen.length ? seen.reduce((a, b) => Math.min(a, b)) : 0, high = seen.length ? seen.reduce((a, b) => Math.max(a, b)) : 1;
    if (panel.zero) low = Math.min(0, low);
    if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { low -= .5; high += .5; }
    const bent = panel.unit ? v => Math.sign(v) * Math.log1p(Math.abs(v) / panel.unit) : v => v;
    const room = (bent(high) - bent(low)) * .06, floor = bent(low) - (panel.zero && low === 0 ? 0 : room), span = bent(high) + room - floor;
    const y = v => y0 + panel.height - (bent(v) - floor) / span * panel.height;
    pen.textAlign = "right"; pen.lineWidth = 1;
    let above = Infinity;
    let ticks = panel.unit ? [0, ...DECADES].filter(v => v <= high) : niceTicks(low, high, panel.height / 34);
    if (ticks.length < 2) ticks = niceTicks(low, high, 4); // one number gives no scale
    for (const v of ticks) {
      if (y(v) < y0 || y(v) > above - 16) continue;
      above = y(v);
      pen.strokeStyle = colour("line"); pen.globalAlpha = .7;
      pen.beginPath(); pen.moveTo(this.left, Math.round(y(v)) + .5); pen.lineTo(right, Math.round(y(v)) + .5); pen.stroke();
      pen.globalAlpha = 1; pen.fillStyle = colour("soft");
      pen.fillText(numberText(+v.toPrecision(6)), this.left - 6, y(v) + 4);
    }
    clipped(() => {
      if (this.before > this.from) { // what came before the chosen range
        pen.fillStyle = colour("ground"); pen.fillRect(this.left, y0, x(this.before) - this.left, panel.height);
      }
      for (const shade of panel.shades || []) {
        if (shade.to < this.from || shade.from > this.to) continue;
        pen.fillStyle = colour("event"); pen.globalAlpha = .16;
        pen.fillRect(x(shade.from), y0, Math.max(2, x(shade.to) - x(shade.from)), panel.height);
        pen.globalAlpha = 1;
      }
      for (const [from, to] of panel.gaps || []) hatch(pen, x(from), y0, Math.max(2, x(to) - x(from)), panel.height, colour("empty"));
      for (const band of panel.bands || []) {
        pen.fillStyle = colour(band.colour); pen.globalAlpha = .22;
        area(pen, points(band.low), points(band.high), x, y);
        pen.globalAlpha = 1;
      }
      for (const part of panel.lines || []) {
        pen.strokeStyle = colour(part.colour); pen.lineWidth = part.width || 1.2; pen.setLineDash(part.dash || []);
        line(pen, points(part.series), x, y);
      }
      pen.setLineDash([]);
    });
    pen.textAlign = "left"; pen.fillStyle = colour("ink");
    pen.fillText(fitted(pen, panel.title, this.inner), this.left, y0 - 6);
    pen.strokeStyle = colour("line"); pen.strokeRect(this.left + .5, y0 + .5, this.inner, panel.height);
  }
}
function nearest(series, t) {
  let low = 0, high = series.v.length - 1;
  if (high < 0) return undefined;
  while (low < high) { const half = (low + high) >> 1; if (timeOf(series, half) < t) low = half + 1; else high = half; }
  if (low > 0 && t - timeOf(series, low - 1) < timeOf(series, low) - t) low--;
  return Math.abs(timeOf(series, low) - t) <= Math.max(series.step * 8, 3 * MINUTE) ? series.v[low] : undefined;
}

/**
 * A map of rows × columns, a cell per character of a row's text: 0 quiet, 1…5 level of severity, x no data, m no model,
 * u muted, p not scored. Only the rows in sight are drawn, so thousands cost no more than twenty.
 */
class CellMap {
  constructor(root, { columns, labels, rows, open, explain }) {
    Object.assign(this, { root, columns, labels, rows, open, explain, chosen: -1, column: -1 });
    this.rowHeight = 18; this.head = 22;
    this.canvas = el("canvas", { role: "img" });
    this.spacer = el("div", { class: "spacer" });
    root.classList.add("map");
    root.tabIndex = 0;
    root.replaceChildren(this.canvas, this.spacer);
    root.addEventListener("scroll", () => this.draw());
    root.addEventListener("pointermove", event => {
      const [row, column] = this.cellAt(event);
      if (!row) { hideTip(); return; }
      showTip(event, this.explain(row, column));
      this.canvas.style.cursor = row.link ? "pointer" : "default";
    });
    for (const left of ["pointerleave", "blur"]) root.addEventListener(left, hideTip);
    root.addEventListener("click", event => { const [row, column] = this.cellAt(event); if (row) this.open(row, column); });
    root.addEventListener("keydown", event => {
      const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key] || 0;
      const aside = { ArrowRight: 1, ArrowLeft: -1 }[event.key] || 0;
      if (by || aside) { this.choose(this.chosen + by, this.column + aside); event.preventDefault(); }
      else if (event.key === "Enter" && this.rows[this.chosen]) this.open(this.rows[this.chosen], this.column);
    });
    redraws.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(root);
    this.set(rows);
  }
  set(rows) {
    this.rows = rows; this.chosen = this.column = -1;
    this.root.scrollTop = 0;
    this.root.dataset.rows = rows.length;
    this.draw();
  }
  /** Choose a row and one of its cells, or with column -1 the whole row, and say what it is. */
  choose(index, column) {
    if (!this.rows.length) return;
    this.chosen = Math.max(0, Math.min(this.rows.length - 1, index));
    this.column = Math.max(-1, Math.min(this.columns - 1, column));
    const y = this.chosen * this.rowHeight, seen = this.root.clientHeight - this.head;
    if (y < this.root.scrollTop) this.root.scrollTop = y;
    else if (y + this.rowHeight > this.root.scrollTop + seen) this.root.scrollTop = y + this.rowHeight - seen;
    const said = this.explain(this.rows[this.chosen], this.column);
    this.root.setAttribute("aria-label", said);
    this.draw();
    const box = this.root.getBoundingClientRect();
    showTip({ clientX: box.left + this.names + Math.max(0, this.column + 1) * this.cell,
      clientY: box.top + this.head + y - this.root.scrollTop }, said);
  }
  cellAt(event) {
    const box = this.root.getBoundingClientRect(), y = event.clientY - box.top - this.head;
    if (y < 0) return [null, -1];
    const row = this.rows[Math.floor((y + this.root.scrollTop) / this.rowHeight)];
    const column = Math.floor((event.clientX - box.left - this.names) / this.cell);
    return [row || null, column >= 0 && column < this.columns ? column : -1];
  }
  draw() {
    const width = this.root.clientWidth, whole = this.head + this.rows.length * this.rowHeight;
    if (!width) return;
    const limit = parseFloat(getComputedStyle(this.root).maxHeight) || 520, height = Math.min(limit - 2, whole + 4);
    this.spacer.style.height = Math.max(0, whole + 4 - height) + "px";
    this.canvas.style.width = width + "px";
    const pen = sized(this.canvas, width, height);
    this.names = Math.min(210, width * .3);
    this.cell = (width - this.names - 8) / this.columns;
    const inks = { 0: colour("s0"), 1: colour("s1"), 2: colour("s2"), 3: colour("s3"), 4: colour("s4"), 5: colour("s5") };
    const first = Math.floor(this.root.scrollTop / this.rowHeight), shift = this.root.scrollTop % this.rowHeight;
    pen.textBaseline = "middle";
    for (let k = first; k < this.rows.length; k++) {
      const y = this.head + (k - first) * this.rowHeight - shift;
      if (y > height) break;
      const row = this.rows[k], cells = row.cells;
      if (k === this.chosen) { pen.fillStyle = colour("hover"); pen.fillRect(0, y, width, this.rowHeight); }
      pen.fillStyle = colour("ink"); pen.textAlign = "left";
      pen.fillText(fitted(pen, row.name, this.names - 16), 8, y + this.rowHeight / 2);
      for (let c = 0; c < this.columns; c++) {
        const mark = cells[c], x = this.names + c * this.cell, wide = Math.max(1, this.cell - (this.cell > 6 ? 1.5 : 0));
        if (inks[mark] !== undefined) { pen.fillStyle = inks[mark]; pen.fillRect(x, y + 1.5, wide, this.rowHeight - 3); }
        else if (mark === "x") hatch(pen, x, y + 1.5, wide, this.rowHeight - 3, colour("empty"));
        else if (mark === "m" || mark === "u") {
          pen.strokeStyle = colour("empty"); pen.lineWidth = 1; pen.setLineDash(mark === "m" ? [2, 2] : []);
          pen.strokeRect(x + .5, y + 2.5, wide - 1, this.rowHeight - 5); pen.setLineDash([]);
        }
      }
      if (k === this.chosen && this.column >= 0) {
        pen.strokeStyle = colour("accent"); pen.lineWidth = 2;
        pen.strokeRect(this.names + this.column * this.cell, y + 1, Math.max(2, this.cell - 1.5), this.rowHeight - 2);
      }
    }
    pen.fillStyle = colour("paper"); pen.fillRect(0, 0, width, this.head);
    pen.fillStyle = colour("soft"); pen.textAlign = "center";
    const every = Math.ceil((Math.max(...this.labels.map(label => pen.measureText(label).width)) + 12) / this.cell);
    this.labels.forEach((label, c) => { if (c % every === 0) pen.fillText(label, this.names + (c + .5) * this.cell, this.head / 2); });
  }
}
const _fits = new Map();
function fitted(pen, text, width) {
  const key = Math.round(width) + "\n" + text;
  if (_fits.has(key)) return _fits.get(key);
  let shown = text;
  while (shown.length > 3 && pen.measureText(shown).width > width) shown = shown.slice(0, Math.max(3, Math.floor(shown.length * .9) - 1)) + "…";
  _fits.set(key, shown);
  return shown;
}
/** An entry of a legend: a line, a dashed line ("line dash"), hatching ("hatched") or an area. */
const legendEntry = (ink, text, kind = "") => el("span", {}, el("i", { class: kind, style: kind.includes("line")
  ? { borderColor: `var(--${ink})` } : kind ? {} : { background: `var(--${ink})`, opacity: .5 } }), text);
/** The buttons beside a chart. */
function zoomButtons(chart) {
  for (const [id, act] of Object.entries({ left: () => chart.move(-.3), right: () => chart.move(.3), in: () => chart.zoom(.5),
    out: () => chart.zoom(2), all: () => chart.reset() })) $(id).addEventListener("click", act);
}
/** What the marks of a map mean. */
function mapLegend(root, rows) {
  const used = mark => rows.some(cells => cells.includes(mark));
  const box = (ink, text) => el("span", {}, el("i", { style: { background: ink } }), text);
  root.replaceChildren(box("var(--s0)", "quiet"), ...LEVELS.map((_, k) => box(`var(--s${k + 1})`, (k ? "" : "severity ") + levelText(k + 1))),
    legendEntry("", "no data", "hatched"),
    el("span", {}, el("i", { style: { border: "1px dashed var(--empty)" } }), "no model"),
    ...(used("u") ? [el("span", {}, el("i", { style: { border: "1px solid var(--empty)" } }), "muted")] : []),
    ...(used("p") ? [el("span", {}, "blank: not scored")] : []));
}
setUpTheme();
