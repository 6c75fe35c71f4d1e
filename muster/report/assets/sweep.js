"use strict";
// The replicas of a sweep side by side: what they differ in, and what each has reached.

const SWEEP_ROWS = 16; // more rows than these scroll below the heads
const LABEL_CHARACTERS = 44;

/** What a replica of a sweep differs in, as `lr 0.2, seed 3`. */
function sweepLabel(sweep, rank) {
  const text = sweep.short.map((name, index) => `${name} ${sweep.values[rank]?.[index] ?? "–"}`).join(", ");
  return `${rank}: ${text.length > LABEL_CHARACTERS ? `${text.slice(0, LABEL_CHARACTERS - 1)}…` : text}`;
}

/** The ranks of which a chart shows lines: all, or of many those that were chosen, or else the best ones. */
function sweepRanks(model, selected, metric) {
  const ranks = model.replicas.map((replica) => replica.rank);
  if (ranks.length <= LINES_MAX) return ranks;
  if (selected.length) return selected.slice(-LINES_MAX);
  const { sweep } = model.data;
  const at = sweep.metrics?.indexOf(metric.name) ?? -1;
  const best = at < 0 ? null : sweep.best[at];
  if (best === null || best === undefined) return ranks.slice(0, LINES_MAX);
  const last = (rank) => sweep.last[rank][at];
  const known = ranks.filter((rank) => last(rank) !== null && last(rank) !== undefined);
  const least = known.every((rank) => last(best) <= last(rank));
  return known.sort((a, b) => (least ? last(a) - last(b) : last(b) - last(a))).slice(0, LINES_MAX);
}

/** From the first launch until the last end, in seconds. */
function spanOf(model, replica) {
  const begin = replica.attempts.find((attempt) => attempt.launched_at)?.launched_at;
  if (!begin) return null;
  const end = replica.attempts.at(-1).ended_at;
  return Math.max(0, (end ? model.since(end) : model.span) - model.since(begin));
}

class SweepTable {
  constructor(model) {
    this.order = null;
    this.update(model);
  }

  /** Until a reader chooses: by rank, or of many replicas the best ones first. */
  firstOrder(columns) {
    const best = columns.find((one) => one.best !== null && one.best !== undefined);
    const { replicas } = this.model;
    if (!best || replicas.length <= SWEEP_ROWS) return { name: "rank", up: true };
    const at = best.by(replicas[best.best]);
    return { name: best.name, up: replicas.every((replica) => (best.by(replica) ?? at) >= at) };
  }

  update(model) {
    this.model = model;
    byId("sweep").hidden = !model.data.sweep;
    if (model.data.sweep) keepingFocus(() => this.draw());
  }

  /** Each column: its title, its text, what it sorts by, and its class. */
  columns() {
    const { model } = this;
    const { sweep } = model.data;
    const number = (text) => (text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text);
    return [
      { name: "rank", title: "replica", text: (replica) => String(replica.rank), by: (replica) => replica.rank, kind: "rank" },
      ...sweep.names.map((name, index) => ({
        name: `value-${index}`, title: sweep.short[index], hint: name, kind: "value",
        text: (replica) => sweep.values[replica.rank]?.[index] ?? "–", by: (replica) => number(sweep.values[replica.rank]?.[index] ?? ""),
      })),
      ...(sweep.metrics ?? []).map((name, index) => ({
        name: `metric-${index}`, title: name, kind: "number",
        text: (replica) => short(sweep.last[replica.rank]?.[index]), by: (replica) => sweep.last[replica.rank]?.[index] ?? null,
        best: sweep.best[index],
      })),
      { name: "state", title: "state", text: (replica) => replica.state, by: (replica) => replica.state, kind: "state" },
      { name: "attempts", title: "attempts", text: (replica) => String(replica.attempts.length), by: (replica) => replica.attempts.length, kind: "number" },
      { name: "time", title: "time", text: (replica) => { const span = spanOf(model, replica); return span === null ? "–" : duration(span); }, by: (replica) => spanOf(model, replica) ?? 0, kind: "number" },
      { name: "cost", title: "cost", text: (replica) => { const usd = usdOf(replica); return usd ? `$${usd >= 1 ? usd.toFixed(2) : usd.toFixed(4)}` : "–"; }, by: usdOf, kind: "number" },
    ];
  }

  draw() {
    const columns = this.columns();
    const order = this.order ?? this.firstOrder(columns);
    const { by } = columns.find((one) => one.name === order.name) ?? columns[0];
    const rows = [...this.model.replicas].sort((a, b) => compared(by(a), by(b), order.up ? 1 : -1) || a.rank - b.rank);
    const head = (column) => {
      const isSorted = column.name === order.name;
      const arrow = isSorted ? (order.up ? " ▲" : " ▼") : "";
      return el("th", { scope: "col", class: column.kind, title: column.hint, "aria-sort": isSorted ? (order.up ? "ascending" : "descending") : "none" },
        el("button", { type: "button", class: "sort", "data-focus": `sweep-${column.name}`, onclick: () => this.sort(column.name, order) }, `${column.title}${arrow}`));
    };
    const cell = (column, replica) => {
      const isBest = column.best === replica.rank;
      const inner = column.kind === "state" ? el("span", { class: `state-${replica.state.replace(/\W/g, "")}` }, replica.state) : column.text(replica);
      const kind = `${column.kind}${isBest ? " best" : ""}`;
      return column.kind === "rank" ? el("th", { scope: "row", class: kind }, inner) : el("td", { class: kind }, inner, isBest ? el("span", { role: "img", "aria-label": "best" }, " ★") : null);
    };
    const table = el("table", { class: "sweep" }, el("thead", {}, el("tr", {}, ...columns.map(head))),
      el("tbody", {}, ...rows.map((replica) => el("tr", { "data-rank": replica.rank }, ...columns.map((column) => cell(column, replica))))));
    const marked = columns.some((column) => column.best !== null && column.best !== undefined);
    byId("sweep-table").replaceChildren(
      el("div", { class: `scroll${rows.length > SWEEP_ROWS ? " tall" : ""}`, tabindex: 0, role: "region", "aria-label": "The replicas of the sweep" }, table),
      el("p", { class: "quiet" }, `Each replica trains by itself, with its own values.${marked ? " ★ marks the best value of a metric." : ""}`));
  }

  sort(name, before) {
    this.order = { name, up: before.name === name ? !before.up : true };
    this.update(this.model);
  }
}

/** What is missing comes last in both directions. */
function compared(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b));
}
