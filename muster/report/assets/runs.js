"use strict";
// The page of many runs: what is shown follows the filter, figures and charts included.

const ROWS_MAX = 200; // rows before more are asked for
const ENDS = ["succeeded", "failed", "stopped"];
const DAY = 86400;

/** The columns of the table: heading, value to sort by, and cell. */
const COLUMNS = [
  ["run", "Run", (run) => run.run, (run) => [el("a", { href: run.link, rel: "noreferrer", target: "_blank" }, run.run), relatives(run)]],
  ["state", "State", (run) => run.state, (run) => [el("span", { class: "pill", "data-state": run.state }, run.state)]],
  ["started", "Started (UTC)", (run) => run.started_at, (run) => [run.started_at.slice(0, 16).replace("T", " ")]],
  ["time", "Time", (run) => run.seconds, (run) => [duration(run.seconds)]],
  ["replicas", "Replicas", (run) => run.replicas, (run) => [count(run.replicas)]],
  ["rounds", "Rounds", (run) => run.rounds, (run) => [count(run.rounds)]],
  ["reruns", "Reruns", (run) => run.reruns, (run) => [count(run.reruns)]],
  ["cost", "Cost", (run) => run.usd, (run) => [dollars(run.usd)]],
  ["reason", "Reason", (run) => run.reason, (run) => [run.reason, causes(run)]],
];
const NUMBERS = new Set(["time", "replicas", "rounds", "reruns", "cost"]);
const DESCENDING_FIRST = new Set([...NUMBERS, "started"]);

/** An element of a drawing; strings become text. */
function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const count = (value) => (value === null ? "–" : value.toLocaleString("en"));
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** `$12.30`; of small amounts four digits. */
function dollars(value) {
  if (value === null) return "–";
  return `$${value >= 1 || value === 0 ? value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : value.toFixed(4)}`;
}

function relatives(run) {
  const named = [run.parent && `continues ${run.parent}`, run.continued_by && `continued by ${run.continued_by}`].filter(Boolean);
  return named.length ? el("small", {}, named.join("; ")) : null;
}

function causes(run) {
  const named = run.failures.map((one) => (one.attempts > 1 ? `${one.failure_class} ×${one.attempts}` : one.failure_class));
  return named.length ? el("small", {}, named.join(", ")) : null;
}

class RunsPage {
  constructor(data) {
    this.data = data;
    this.now = Date.parse(data.made_at) / 1000;
    this.sort = { column: "started", down: true };
    this.rows = ROWS_MAX;
    this.offer("state", [["", "all"], ...[...ENDS, "running"].map((state) => [state, state])]);
    const classes = [...new Set(data.runs.flatMap((run) => run.failures.map((one) => one.failure_class)))].sort();
    this.offer("failure", [["", "any or none"], ...classes.map((name) => [name, name])]);
    this.offer("days", [["", "at any time"], ["1", "in the last day"], ["7", "in the last 7 days"], ["30", "in the last 30 days"]]);
    byId("filter").addEventListener("input", () => { this.rows = ROWS_MAX; this.draw(); });
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    new ResizeObserver(() => this.drawCharts()).observe(byId("cost"));
    byId("made").textContent = `Created ${clockTime(data.made_at)}. Costs: ${data.prices}; a run counts on the day on which it started.`;
    this.draw();
  }

  offer(id, options) {
    byId(id).replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  }

  /** The runs that meet the filter. */
  chosen() {
    const [state, failure, days] = ["state", "failure", "days"].map((id) => byId(id).value);
    const words = byId("words").value.trim().toLowerCase();
    return this.data.runs.filter((run) =>
      (!state || run.state === state)
      && (!failure || run.failures.some((one) => one.failure_class === failure))
      && (!days || this.now - Date.parse(run.started_at) / 1000 <= Number(days) * DAY)
      && (!words || `${run.run}\n${run.reason}`.toLowerCase().includes(words)));
  }

  draw() {
    this.shown = this.chosen();
    this.drawFacts();
    this.drawCharts();
    this.drawCauses();
    this.drawTable();
  }

  drawFacts() {
    const { shown } = this;
    const ended = shown.filter((run) => ENDS.includes(run.state));
    const of = (state) => shown.filter((run) => run.state === state).length;
    const priced = shown.filter((run) => run.usd !== null);
    const unpriced = ended.length - priced.length;
    const reruns = sum(shown.map((run) => run.reruns ?? 0));
    const first = shown.length ? clockTime(shown[shown.length - 1].started_at).slice(0, 10) : "";
    const which = shown.length === 1 ? "1 run" : `${count(shown.length)} runs`;
    byId("summary").textContent = shown.length
      ? `${which} since ${first} in ${this.data.region}${this.data.more ? "; older ones are not on this page" : ""}.`
      : "No run meets these conditions.";
    const fact = (label, value, note = "") => el("div", {}, el("dt", {}, label), el("dd", {}, value, note ? el("small", {}, note) : null));
    byId("facts").replaceChildren(
      fact("Succeeded", ended.length ? `${Math.round((100 * of("succeeded")) / ended.length)} %` : "–", `${of("succeeded")} of ${ended.length} that have ended; ${of("failed")} failed, ${of("stopped")} stopped`),
      fact("In progress", count(of("running"))),
      fact("Cost", dollars(sum(priced.map((run) => run.usd))), unpriced ? `without ${unpriced} whose cost is not known` : ""),
      fact("Time", ended.length ? duration(median(ended.map((run) => run.seconds))) : "–", "median of those that have ended"),
      fact("Reruns", count(reruns), Object.entries(this.counted("reruns")).map(([name, times]) => `${name} ×${times}`).join(", ")),
    );
  }

  /** Attempts or reruns of the runs shown, by failure class, the most frequent first. */
  counted(what) {
    const found = {};
    for (const run of this.shown) for (const one of run.failures) if (one[what]) found[one.failure_class] = (found[one.failure_class] ?? 0) + one[what];
    return Object.fromEntries(Object.entries(found).sort(([, left], [, right]) => right - left));
  }

  drawCharts() {
    if (!this.shown) return;
    drawCosts(byId("cost"), this.shown);
    drawTimes(byId("times"), this.shown);
  }

  drawCauses() {
    const attempts = this.counted("attempts");
    const reruns = this.counted("reruns");
    const most = Math.max(1, ...Object.values(attempts));
    const rows = Object.entries(attempts).map(([name, times]) => el("tr", {},
      el("th", { scope: "row" }, name),
      el("td", { class: "number" }, count(times)),
      el("td", { class: "number" }, count(reruns[name] ?? 0)),
      el("td", { class: "share" }, svg("svg", { "aria-hidden": "true" }, svg("rect", { width: `${(100 * times) / most}%`, height: "100%", rx: 2 })))));
    const heads = ["Failure class", "Attempts", "Rerun", ""].map((text, at) => el("th", { scope: "col", class: at ? "number" : null }, text));
    byId("causes").replaceChildren(rows.length
      ? el("table", { class: "causes" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows))
      : el("p", { class: "none" }, "Every attempt succeeded, or is not known."));
  }

  drawTable() {
    const { column, down } = this.sort;
    const value = COLUMNS.find(([name]) => name === column)[2];
    // What is not known comes last, whatever the order.
    const ordered = [...this.shown].sort((left, right) => {
      const [one, other] = [value(left), value(right)];
      if (one === null || other === null) return (one === null) - (other === null);
      return (one < other ? -1 : one > other ? 1 : 0) * (down ? -1 : 1);
    });
    const heads = COLUMNS.map(([name, text]) => el("th", { scope: "col", class: NUMBERS.has(name) ? "number" : null, "aria-sort": name === column ? (down ? "descending" : "ascending") : null },
      el("button", { type: "button", "data-focus": `sort-${name}`, onclick: () => this.sortBy(name) }, text)));
    const rows = ordered.slice(0, this.rows).map((run) => el("tr", {}, ...COLUMNS.map(([name, text, , cell]) =>
      el("td", { class: NUMBERS.has(name) ? "number" : `of-${name}`, "data-label": NUMBERS.has(name) ? text : null }, ...cell(run)))));
    const left = ordered.length - rows.length;
    byId("table").replaceChildren(
      el("table", { class: "runs" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
      left > 0 ? el("p", { class: "controls" }, el("button", { type: "button", "data-focus": "more", onclick: () => { this.rows += ROWS_MAX; keepingFocus(() => this.drawTable()); } }, `Show ${count(Math.min(left, ROWS_MAX))} more of ${count(left)}`)) : "");
  }

  sortBy(column) {
    this.sort = { column, down: this.sort.column === column ? !this.sort.down : DESCENDING_FIRST.has(column) };
    keepingFocus(() => this.drawTable());
  }
}

function median(values) {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Round values from zero to at least `most`: about four steps. */
function ticks(most, bases = [1, 2, 5, 10]) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = bases.find((base) => base * power >= rough * 0.999) * power;
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
}

const TIME_STEPS = [1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY, 2 * DAY, 7 * DAY];

/** The same for seconds. */
function timeTicks(most) {
  const step = TIME_STEPS.find((one) => most / one <= 6) ?? Math.ceil(most / 6 / DAY) * DAY;
  return Array.from({ length: Math.max(2, Math.ceil(most / step) + 1) }, (_, index) => index * step);
}

const FRAME = { left: 62, right: 12, top: 10, bottom: 24, height: 220 };
const dayOf = (run) => Math.floor(Date.parse(run.started_at) / 1000 / DAY);
const dayText = (day) => new Date(day * DAY * 1000).toISOString().slice(0, 10);

/** An empty chart whose x axis has the days from the first to the last run; `place` maps values to points. */
function frame(figure, runs, levels, text) {
  const width = Math.max(280, figure.clientWidth);
  const days = runs.map(dayOf);
  const [first, last] = [Math.min(...days), Math.max(...days)];
  const inner = width - FRAME.left - FRAME.right;
  const tall = FRAME.height - FRAME.top - FRAME.bottom;
  const top = levels[levels.length - 1];
  const place = {
    day: inner / (last - first + 1),
    x: (day) => FRAME.left + (inner * (day - first)) / (last - first + 1),
    y: (value) => FRAME.top + tall * (1 - value / top),
  };
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${FRAME.height}`, role: "img" });
  for (const level of levels) chart.append(
    svg("line", { class: "grid", x1: FRAME.left, x2: width - FRAME.right, y1: place.y(level), y2: place.y(level) }),
    svg("text", { x: FRAME.left - 6, y: place.y(level) + 4, "text-anchor": "end" }, text(level)));
  const every = Math.ceil((last - first + 1) / Math.max(1, Math.floor(inner / 90)));
  for (let day = first; day <= last; day += every)
    chart.append(svg("text", { x: place.x(day) + place.day / 2, y: FRAME.height - 6, "text-anchor": "middle" }, dayText(day)));
  return { chart, place };
}

function empty(figure, text) {
  figure.replaceChildren(el("p", { class: "none" }, text));
}

/** The cost of the runs that started on each day, one colour for each verdict. */
function drawCosts(figure, runs) {
  const priced = runs.filter((run) => run.usd !== null);
  if (!priced.length) return empty(figure, "No cost is known.");
  const byDay = new Map();
  for (const run of priced) {
    const costs = byDay.get(dayOf(run)) ?? {};
    costs[run.state] = (costs[run.state] ?? 0) + run.usd;
    byDay.set(dayOf(run), costs);
  }
  const totals = [...byDay.values()].map((costs) => sum(Object.values(costs)));
  const { chart, place } = frame(figure, priced, ticks(Math.max(...totals)), (level) => `$${+level.toPrecision(3)}`);
  const wide = Math.min(48, place.day * 0.8);
  for (const [day, costs] of byDay) {
    let below = 0;
    for (const state of ENDS) {
      if (!costs[state]) continue;
      const top = place.y(below + costs[state]);
      chart.append(svg("rect", { class: `bar-${state}`, x: place.x(day) + (place.day - wide) / 2, width: wide, y: top, height: Math.max(0.5, place.y(below) - top) },
        svg("title", {}, `${dayText(day)}: ${dollars(costs[state])} ${state}`)));
      below += costs[state];
    }
  }
  chart.setAttribute("aria-label", `Cost by day: ${dollars(sum(totals))} on ${byDay.size} days, at most ${dollars(Math.max(...totals))} on one`);
  figure.replaceChildren(chart);
}

/** A dot for each run: when it started, and how long it took. */
function drawTimes(figure, runs) {
  if (!runs.length) return empty(figure, "There is no run.");
  const most = Math.max(...runs.map((run) => run.seconds));
  const { chart, place } = frame(figure, runs, timeTicks(most), (level) => (level ? duration(level) : "0"));
  for (const run of runs) chart.append(
    svg("circle", { class: `dot-${run.state}`, cx: place.x(Date.parse(run.started_at) / 1000 / DAY), cy: place.y(run.seconds), r: 4 },
      svg("title", {}, `${run.run}: ${run.state} after ${duration(run.seconds)}`)));
  chart.setAttribute("aria-label", `Durations of ${runs.length} runs by their start, at most ${duration(most)}`);
  figure.replaceChildren(chart);
}

new RunsPage(JSON.parse(byId("data").textContent));
document.documentElement.dataset.ready = "true";
