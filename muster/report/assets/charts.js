"use strict";
// Metrics and rates as lines, and the metrics of many ranks as a map.

const LINES_MAX = 12; // more lines than this cannot be distinguished
const TABLE_ROWS = 50;
const MAP_LINES = 1000;
const UPDATE_METRICS = ["update_cosine", "update_norm", "codec_error", "residual_share"]; // muster/contract/run/round_values.py
const RANK_COLOURS = ["#2f7fc1", "#d4731c", "#2c8a57", "#c2456b", "#7b5bc4", "#8a7a1f", "#1f8f93", "#a0522d", "#5f6caf", "#b04fa8", "#4f8a10", "#c0392b"];

/** A chart that fills its figure and follows the page's width and colours. */
class Chart {
  constructor(figure, caption) {
    this.figure = figure;
    this.caption = el("figcaption", {}, caption);
    this.place = el("div");
    this.table = el("details", {}, el("summary", {}, "Show as a table"));
    figure.replaceChildren(this.caption, this.place, this.table);
    new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: 280 })).observe(figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot?.redraw(false));
  }

  width() {
    return Math.max(240, this.figure.clientWidth);
  }

  /** `zero`: the axes begin at 0. `right`: the unit of the series whose scale is "right". */
  draw(label, series, data, { bands = [], unit, right, zero = false } = {}) {
    this.plot?.destroy();
    const axisStyle = { stroke: () => css("--quiet"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1 } };
    const fromZero = { range: (_, __, most) => [0, (most || 1) * 1.05] };
    const options = {
      width: this.width(), height: 280, bands,
      scales: { x: { time: false, range: (_, least, most) => (least === most ? [least - 1, most + 1] : [least, most]) }, ...(zero ? { y: fromZero, right: fromZero } : {}) },
      series: [{ label: "round" }, ...series.map((one) => ({ spanGaps: false, points: { show: data[0].length < 60, size: 4 }, value: (_, value) => short(value), ...one }))],
      // A round is a whole number.
      axes: [{ ...axisStyle, label: "round", labelSize: 18, size: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000, 1000000], values: (_, splits) => splits.map((one) => (Number.isInteger(one) ? String(one) : "")) },
        { ...axisStyle, size: 62, label: unit, labelSize: 18, values: (_, splits) => splits.map(right ? large : short) },
        ...(right ? [{ ...axisStyle, scale: "right", side: 1, grid: { show: false }, size: 62, label: right, labelSize: 18, values: (_, splits) => splits.map(short) }] : [])],
      cursor: { drag: { x: true, y: false } },
    };
    this.place.setAttribute("role", "img");
    this.place.setAttribute("aria-label", label);
    this.plot = new uPlot(options, data, this.place);
    this.fillTable(series, data);
  }

  /** The numbers of the lines, rendered when the table is opened. */
  fillTable(series, data) {
    const details = el("details", { open: this.table.open }, el("summary", {}, "Show as a table"));
    const fillIn = () => {
      if (!details.open || details.children.length > 1) return;
      const step = Math.max(1, Math.ceil(data[0].length / TABLE_ROWS));
      const rows = [];
      for (let index = data[0].length - 1; index >= 0; index -= step)
        rows.unshift(el("tr", {}, el("th", { scope: "row" }, String(data[0][index])), ...series.map((_, at) => el("td", {}, short(data[at + 1][index])))));
      const heads = ["round", ...series.map((one) => one.label)].map((name) => el("th", { scope: "col" }, name));
      details.append(el("table", { class: "figures" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
    };
    details.addEventListener("toggle", fillIn);
    fillIn();
    this.table.replaceWith(details);
    this.table = details;
  }
}

/** One metric at a time: merged, with the lines of some ranks, and a map of all. */
class Metrics {
  constructor(model) {
    this.model = model;
    this.selected = [];
    this.chart = new Chart(byId("metric-chart"), "");
    this.map = new RankMap(byId("metric-map"));
    byId("metric").addEventListener("change", () => this.draw());
    this.update(model);
  }

  update(model) {
    this.model = model;
    const select = byId("metric");
    const chosen = select.value;
    const names = model.rounds.metrics.map((metric) => metric.name);
    select.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    select.value = names.includes(chosen) ? chosen : names.find((name) => /loss/i.test(name)) ?? names.find((name) => !UPDATE_METRICS.includes(name)) ?? names[0] ?? "";
    this.draw();
  }

  select(ranks) {
    this.selected = ranks;
    this.draw();
  }

  draw() {
    const metric = this.model.rounds.metrics.find((one) => one.name === byId("metric").value);
    byId("metrics").hidden = !metric;
    if (!metric) return;
    if (this.model.data.sweep) {
      this.drawSweep(metric);
      return;
    }
    const { numbers } = this.model.rounds;
    const few = this.model.replicas.length <= LINES_MAX;
    const ranks = few ? this.model.replicas.map((replica) => replica.rank) : this.selected.slice(-LINES_MAX);
    const series = [
      { label: "greatest", stroke: "transparent", width: 0, points: { show: false } },
      { label: "least", stroke: "transparent", width: 0, points: { show: false } },
      ...ranks.map((rank, index) => ({ label: `replica ${rank}`, stroke: RANK_COLOURS[index % RANK_COLOURS.length], width: 1.25 })),
      { label: "all (weighted mean)", stroke: () => css("--text"), width: 2.5 },
    ];
    const data = [numbers, metric.high ?? [], metric.low ?? [], ...ranks.map((rank) => this.line(metric, rank)), metric.mean ?? []];
    const last = (metric.mean ?? []).at(-1);
    this.chart.caption.textContent = `${metric.name} by round: the weighted mean of all replicas, and the range from the least to the greatest value${few ? "" : "; open replicas above to see their lines"}.`;
    this.chart.draw(`${metric.name} by round, last mean ${short(last)}`, series, data, { bands: [{ series: [1, 2], fill: () => css("--band") }] });
    this.map.draw(this.model, metric);
  }

  line(metric, rank) {
    return this.model.rounds.numbers.map((_, index) => { const value = this.model.value(metric, rank, index); return Number.isNaN(value) ? null : value; });
  }

  /** The replicas of a sweep, each with its own values: their mean says nothing. */
  drawSweep(metric) {
    const { sweep } = this.model.data;
    const ranks = sweepRanks(this.model, this.selected, metric);
    const series = ranks.map((rank, index) => ({ label: sweepLabel(sweep, rank), stroke: RANK_COLOURS[index % RANK_COLOURS.length], width: 1.75, spanGaps: true }));
    const some = ranks.length < this.model.replicas.length;
    this.chart.caption.textContent = `${metric.name} by round of ${some ? `${ranks.length} of ${this.model.replicas.length} replicas${this.selected.length ? ", which are open above" : "; open replicas above to see the lines of others"}` : "each replica"}.`;
    this.chart.draw(`${metric.name} by round of ${ranks.length} replicas`, series, [this.model.rounds.numbers, ...ranks.map((rank) => this.line(metric, rank))]);
    this.map.draw(this.model, metric);
  }
}

/** Every rank's value in every round as a colour. */
class RankMap {
  constructor(figure) {
    this.figure = figure;
    this.at = { rank: 0, column: 0 };
  }

  draw(model, metric) {
    keepingFocus(() => this.drawAll(model, metric));
  }

  drawAll(model, metric) {
    this.figure.hidden = model.replicas.length <= LINES_MAX;
    if (this.figure.hidden) return;
    this.model = model;
    this.metric = metric;
    const columns = model.columns(metric);
    const ranks = model.replicas.length;
    this.columns = columns;
    // Of more replicas than a screen has lines, some are drawn; all can be read.
    const lines = Math.min(ranks, MAP_LINES);
    const canvas = el("canvas", { width: columns, height: lines, tabindex: 0, "data-focus": "map", role: "application", "aria-roledescription": "map", "aria-label": `${metric.name} of every replica (rows) in every round (columns). Use the arrow keys to read single values.` });
    canvas.style.height = `${Math.min(420, Math.max(120, ranks * 3))}px`;
    const context = canvas.getContext("2d");
    const picture = context.createImageData(columns, lines);
    const values = model.cells(metric);
    const span = metric.greatest - metric.least || 1;
    for (let line = 0; line < lines; line += 1) {
      const { rank } = model.replicas[Math.floor((line * ranks) / lines)];
      for (let column = 0; column < columns; column += 1) {
        const value = values[rank * columns + column];
        if (value === value) picture.data.set(colour((value - metric.least) / span), (line * columns + column) * 4);
      }
    }
    context.putImageData(picture, 0, 0);
    this.readout = el("p", { class: "readout", "aria-live": "polite" }, "");
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      this.read(Math.floor(((event.clientY - box.top) / box.height) * ranks), Math.floor(((event.clientX - box.left) / box.width) * columns));
    });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      this.read(this.at.rank + move[0], this.at.column + move[1]);
    });
    const scale = el("canvas", { width: 64, height: 1, "aria-hidden": "true" });
    const gradient = scale.getContext("2d").createImageData(64, 1);
    for (let index = 0; index < 64; index += 1) gradient.data.set(colour(index / 63), index * 4);
    scale.getContext("2d").putImageData(gradient, 0, 0);
    this.figure.replaceChildren(
      el("figcaption", {}, `${metric.name} of every replica (rows) in every round (columns); empty where a replica did not take part.`),
      el("div", { class: "map" }, canvas), this.readout,
      el("div", { class: "scale" }, short(metric.least), scale, short(metric.greatest)));
  }

  read(rank, column) {
    this.at = { rank: Math.min(Math.max(rank, 0), this.model.replicas.length - 1), column: Math.min(Math.max(column, 0), this.columns - 1) };
    const { rank: whose } = this.model.replicas[this.at.rank];
    const value = this.model.cells(this.metric)[whose * this.columns + this.at.column] ?? NaN;
    const round = this.model.rounds.numbers[Math.min(this.at.column * this.metric.bucket, this.model.rounds.numbers.length - 1)];
    this.readout.textContent = `replica ${whose}, round ${round}: ${this.metric.name} ${Number.isNaN(value) ? "none" : short(value)}`;
  }
}

/** From dark blue through green to yellow: brightness always grows, so colour-blind readers can use it. */
function colour(share) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const index = Math.min(Math.floor(place), stops.length - 2);
  const mixed = stops[index].map((from, at) => from + (stops[index + 1][at] - from) * (place - index));
  return [...mixed, 255];
}

/** How the replicas' updates agree, and what the codec loses of them. */
class Updates {
  constructor(model) {
    this.chart = new Chart(byId("update-chart"), "");
    this.update(model);
  }

  update(model) {
    const { numbers, metrics } = model.rounds;
    const [cosine, error] = ["update_cosine", "codec_error"].map((name) => metrics.find((one) => one.name === name));
    const isShown = numbers.length > 1 && (cosine || error) && !model.data.sweep;
    byId("update-chart").hidden = !isShown;
    if (!isShown) return;
    const hidden = { stroke: "transparent", width: 0, points: { show: false } };
    const lines = [
      ...(cosine ? [[{ label: "greatest cosine", ...hidden }, cosine.high], [{ label: "least cosine", ...hidden }, cosine.low],
        [{ label: "cosine (weighted mean)", stroke: () => css("--text"), width: 2.5 }, cosine.mean]] : []),
      ...(error ? [[{ label: "codec error", stroke: () => css("--exchanging"), width: 1.75 }, error.mean]] : []),
    ];
    const agree = "how far the replicas' updates point the same way, as the cosine between them (1: all alike) with its range over the replicas";
    const lose = "what the codec loses of an update, as a share of it";
    this.chart.caption.textContent = `By round: ${[cosine && agree, error && lose].filter(Boolean).join("; and ")}.`;
    this.chart.draw(`Cosine between the updates, last ${short(cosine?.mean.at(-1))}; codec error, last ${short(error?.mean.at(-1))}`, lines.map(([one]) => one),
      [numbers, ...lines.map(([, values]) => values)], { bands: cosine ? [{ series: [1, 2], fill: () => css("--band") }] : [] });
  }
}

/** What counted in each round, per second. */
class Rates {
  constructor(model) {
    this.chart = new Chart(byId("rate-chart"), "");
    this.update(model);
  }

  update(model) {
    const { numbers, rates, unit } = model.rounds;
    const isShown = numbers.length > 1 && !model.data.sweep;
    byId("rate-chart").hidden = !isShown;
    if (!isShown) return;
    this.chart.caption.textContent = `How many ${unit} counted in each round, per second of its duration. The first round began with the launch of the jobs.`;
    this.chart.draw(`${unit} per second, last ${short(rates.at(-1))}`, [{ label: `${unit}/s`, stroke: () => css("--training"), width: 1.75 }],
      [numbers, numbers.map((_, index) => rates[index] ?? null)], { unit: `${unit}/s`, zero: true });
  }
}
