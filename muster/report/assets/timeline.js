"use strict";
// Replicas over time: a table with a bar for each one, which sorts and filters; and for many replicas an overview.

const PAGE_ROWS = 50;
const MANY = 60; // replicas from which on there is an overview
const BAR_HEIGHT = 26;
const HOME = "home"; // what a place that is not named is

const FILTERS = {
  all: ["all replicas", () => true],
  rerun: ["rerun replicas", (replica) => replica.attempts.length > 1],
  trouble: ["replicas that have not succeeded", (replica) => !["succeeded", "Completed", "parked"].includes(replica.state)],
};

const usdOf = (replica) => (replica.usd ?? []).reduce((sum, cost) => sum + (cost ?? 0), 0);

/** The columns beside the bar: their title, what they sort by, the largest first, and whether a phone shows them. */
const COLUMNS = {
  rank: { title: "replica", by: (model, replica) => replica.rank },
  state: { title: "state", by: (model, replica) => replica.state },
  round: { title: "round", by: (model, replica) => replica.round ?? -1 },
  training: { title: "training", by: (model, replica) => model.secondsOf(replica.rank, "training"), wide: true },
  waiting: { title: "waited", by: (model, replica) => model.secondsOf(replica.rank, "waiting"), wide: true },
  last: { title: "was last", by: (model, replica) => model.waitedFor(replica.rank)[1], wide: true },
  cost: { title: "cost", by: (model, replica) => usdOf(replica) },
};

/** Accepts what a reader looks for: ranks such as `3, 8-11`, or a text in the state or a reason. */
function sought(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return () => true;
  if (/^[\d\s,-]+$/.test(wanted)) {
    const ranges = wanted.split(",").map((part) => part.trim().split("-").map(Number)).filter(([first]) => !Number.isNaN(first));
    return (replica) => ranges.some(([first, last = first]) => first <= replica.rank && replica.rank <= last);
  }
  const texts = (replica) => [replica.state, ...replica.attempts.flatMap((one) => [one.failure_class, one.reason, one.instance_type, one.cluster?.cluster, one.where ? placeText(one.where) : null])];
  return (replica) => texts(replica).some((one) => one?.toLowerCase().includes(wanted));
}

/** Draws segments onto a canvas as wide as its place. */
function paintBar(canvas, model, parts, colours) {
  const width = canvas.clientWidth;
  const context = sized(canvas, width, BAR_HEIGHT);
  const x = (seconds) => (Math.min(Math.max(seconds, 0), model.span) / model.span) * width;
  for (const part of parts) {
    if (MARKS.has(part.phase)) continue;
    context.fillStyle = colours[part.phase];
    const [top, height] = part.phase === "parked" ? [12, 2] : [5, 16];
    context.fillRect(x(part.from), top, Math.max(0.4, x(part.to) - x(part.from)), height);
  }
  context.fillStyle = colours.broken;
  for (const part of parts) if (part.phase === "broken") context.fillRect(Math.min(width - 4, Math.max(0, x(part.from) - 2)), 1, 4, 24);
  context.fillStyle = colours.text;
  context.font = "600 10px system-ui, sans-serif";
  for (const part of parts) {
    const at = Math.min(width - 3, Math.max(0, x(part.from) - 1.5));
    if (part.phase === "restarted") context.fillRect(at, 1, 3, 24);
    if (part.phase === "scaled") paintLabel(context, part.label, at, width, colours);
  }
}

/** A number of instances on a bar, where it begins; left of the place where there is no room to the right of it. */
function paintLabel(context, text, at, width, colours) {
  const size = context.measureText(text).width + 6;
  const left = at + size > width ? Math.max(0, at - size) : at;
  context.fillStyle = colours.text;
  context.fillRect(left, 6, size, 14);
  context.fillStyle = colours.card;
  context.fillText(text, left + 3, 16.5);
  context.fillStyle = colours.text;
}

/** The axis, with a tick for every committed round. */
function paintAxis(canvas, model, colours) {
  const width = canvas.clientWidth;
  const context = sized(canvas, width, 22);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.quiet;
  const step = niceStep(model.span / Math.max(2, Math.min(6, width / 110)));
  let free = 0;
  for (let at = 0; at <= model.span; at += step) {
    const x = (at / model.span) * width;
    const text = at ? duration(at) : "start";
    const size = context.measureText(text).width;
    const left = Math.min(width - size, Math.max(0, x - (at ? size / 2 : 0)));
    if (left < free) continue;
    context.fillText(text, left, 11);
    context.fillRect(Math.min(width - 1, x), 14, 1, 8);
    free = left + size + 8;
  }
  context.fillStyle = colours.text;
  context.globalAlpha = 0.6;
  const most = Math.min(model.rounds.at.length, 250);
  for (let index = 0; index < most; index += 1) {
    const at = model.rounds.at[Math.floor((index * model.rounds.at.length) / most)];
    context.fillRect((Math.min(Math.max(at, 0), model.span) / model.span) * width, 17, 1, 5);
  }
}

function niceStep(rough) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  return steps.find((step) => step >= rough) ?? Math.ceil(rough / 86400) * 86400;
}

/** The table of replicas with its filter, its order, its pages and the details of open replicas. */
class Timeline {
  constructor(model, onSelect) {
    this.model = model;
    this.onSelect = onSelect;
    this.page = 0;
    this.open = new Set();
    this.order = { name: "rank", up: true };
    this.tip = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
    document.body.append(this.tip);
    byId("which").append(...Object.entries(FILTERS).map(([name, [label]]) => el("option", { value: name }, label)));
    byId("order").append(...Object.entries(COLUMNS).map(([name, { title }]) => el("option", { value: name }, title)));
    byId("legend").append(...Object.entries(PHASES).map(([name, { words }]) => el("li", {}, el("i", { class: `key ${name}` }), words)),
      el("li", {}, el("i", { class: "key broken" }), "failed or stopped"), el("li", {}, el("i", { class: "key commit" }), "round committed"));
    this.clusterLegend();
    const change = () => { this.page = 0; this.draw(); };
    byId("which").addEventListener("change", change);
    byId("find").addEventListener("input", change);
    byId("order").addEventListener("change", () => this.sort(byId("order").value));
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    byId("overview").addEventListener("click", (event) => this.jump(event));
    byId("replicas").addEventListener("pointermove", (event) => this.point(event));
    byId("replicas").addEventListener("pointerleave", () => { this.tip.hidden = true; });
    new ResizeObserver(() => this.paint()).observe(byId("replicas"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** What only some bars show: those of elastic runs, and of jobs on clusters, of which a live page may learn later. */
  clusterLegend() {
    if (this.model.data.seats && !byId("legend").querySelector(".parked")) byId("legend").append(el("li", {}, el("i", { class: "key parked" }), "parked: not wanted"));
    if (byId("legend").querySelector(".restarted") || !this.model.replicas.some((replica) => replica.attempts.some((attempt) => attempt.cluster))) return;
    byId("legend").append(el("li", {}, el("i", { class: "key restarted" }), "restarted by the operator"), el("li", {}, el("b", { class: "key scaled" }, "×2"), "now trains on 2 instances"));
  }

  update(model) {
    this.model = model;
    this.clusterLegend();
    this.draw();
  }

  /** Figures with the largest first; the same column again: the other way round. */
  sort(name) {
    const { order } = this;
    this.order = { name, up: order.name === name ? !order.up : name === "rank" || name === "state" };
    this.page = 0;
    this.draw();
  }

  shown() {
    const accepts = FILTERS[byId("which").value][1];
    const wanted = sought(byId("find").value);
    const rows = this.model.replicas.filter((replica) => accepts(replica) && wanted(replica));
    const { name, up } = this.order;
    const { by } = COLUMNS[name];
    const keys = new Map(rows.map((replica) => [replica, by(this.model, replica)]));
    const sign = up ? 1 : -1;
    return rows.sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      return a < b ? -sign : a > b ? sign : one.rank - other.rank;
    });
  }

  draw() {
    keepingFocus(() => this.drawAll());
  }

  drawAll() {
    const rows = this.shown();
    this.page = Math.min(this.page, Math.max(0, Math.ceil(rows.length / PAGE_ROWS) - 1));
    const some = rows.slice(this.page * PAGE_ROWS, (this.page + 1) * PAGE_ROWS);
    this.bars = [];
    this.axis = el("canvas", { class: "bar", role: "img", "aria-label": `Time from the start of the run: ${duration(this.model.span)}, ${this.model.rounds.numbers.length} rounds committed`, "data-rounds": this.model.rounds.numbers.length });
    const head = el("tr", { role: "row" }, this.heading("rank"), this.heading("state"),
      el("th", { scope: "col", role: "columnheader", class: "time" }, this.axis),
      ...Object.keys(COLUMNS).slice(2).map((name) => this.heading(name)));
    const body = el("tbody", { role: "rowgroup" }, ...some.flatMap((replica) => this.row(replica)));
    const label = `Replicas ${rows.length ? `${this.page * PAGE_ROWS + 1} to ${this.page * PAGE_ROWS + some.length} of ${rows.length}` : "(none match)"}`;
    const table = el("table", { class: "replicas", role: "table", "aria-label": label }, el("thead", { role: "rowgroup" }, head), body);
    byId("order").value = this.order.name;
    byId("replicas").replaceChildren(some.length ? table : el("p", { class: "none" }, "No replica matches."));
    this.drawPages(rows.length);
    this.drawOverview();
    this.paint();
  }

  /** Paints what is on the page, in its present width and colours. */
  paint() {
    if (!this.axis?.isConnected) return;
    const colours = inks();
    paintAxis(this.axis, this.model, colours);
    for (const [canvas, parts] of this.bars) paintBar(canvas, this.model, parts, colours);
  }

  heading(name) {
    const { title, wide } = COLUMNS[name];
    const isSorted = this.order.name === name;
    const { up } = this.order;
    const number = !["rank", "state"].includes(name);
    return el("th", { scope: "col", role: "columnheader", class: [number ? "number" : "", wide ? "wide" : ""].join(" ").trim(), "aria-sort": isSorted ? (up ? "ascending" : "descending") : "none" },
      el("button", { type: "button", class: "sort", "data-focus": `sort-${name}`, onclick: () => this.sort(name) }, `${title}${isSorted ? (up ? " ▲" : " ▼") : ""}`));
  }

  row(replica) {
    const { model } = this;
    const opened = this.open.has(replica.rank);
    const usd = usdOf(replica);
    const rate = model.rounds.pace?.by_rank?.[replica.rank] ?? null;
    const after = counted(replica.attempts.slice(0, -1).filter((attempt) => !hasLeft(model, attempt)).map((attempt) => attempt.failure_class ?? "unknown"));
    const where = replica.attempts.at(-1)?.where;
    const cluster = replica.attempts.findLast((attempt) => attempt.cluster)?.cluster.cluster;
    const place = cluster ? `on ${cluster}` : where ? placeText(where) : null;
    const parts = segments(model, replica);
    const spent = totals(parts);
    const total = Object.values(spent).reduce((sum, one) => sum + one, 0);
    const [last] = model.waitedFor(replica.rank);
    const known = Boolean(model.rounds.times);
    const toggle = () => {
      if (!this.open.delete(replica.rank)) this.open.add(replica.rank);
      this.draw();
      this.onSelect([...this.open]);
    };
    const canvas = el("canvas", { class: "bar", role: "img", "aria-label": spoken(replica, parts) });
    this.bars.push([canvas, parts]);
    const cell = (attributes, ...children) => el("td", { role: "cell", ...attributes }, ...children);
    const line = el("tr", { role: "row", "data-rank": replica.rank },
      cell({ class: "rank" }, el("button", { type: "button", "data-focus": `replica-${replica.rank}`, "aria-expanded": String(opened), "aria-label": `Replica ${replica.rank}, details`, onclick: toggle }, `${opened ? "▾" : "▸"} ${replica.rank}`)),
      cell({}, el("span", { class: `state-${replica.state.replace(/\W/g, "")}` }, replica.state), place ? el("small", {}, place) : null, after ? el("small", {}, `rerun after ${after}`) : null),
      cell({ class: "time" }, canvas),
      cell({ class: "number" }, replica.round === undefined || replica.round === null ? "–" : String(replica.round), rate === null ? null : el("small", {}, `${short(rate)}/s`)),
      cell({ class: "number wide" }, known && total ? percent((spent.training ?? 0) / total) : "–"),
      cell({ class: "number wide" }, known ? duration(spent.waiting ?? 0) : "–"),
      cell({ class: "number wide" }, known ? String(last) : "–", known ? el("small", {}, `of ${model.rounds.time_use?.rounds ?? 0}`) : null),
      cell({ class: "number" }, usd ? `$${usd >= 1 ? usd.toFixed(2) : usd.toFixed(4)}` : "–"));
    return opened ? [line, this.details(replica, spent)] : [line];
  }

  details(replica, spent) {
    const { model } = this;
    const link = (kind, name, text) => el("a", { href: model.job(kind, name), rel: "noreferrer", target: "_blank" }, text);
    // The console of another region, or account, is not linked.
    const links = ({ job, cluster, where }) => (where && (where.place ?? HOME) !== HOME ? [where.may_run ? "may still run" : "–"] : cluster ? [link("cluster", cluster.cluster, "cluster"), " ", link("cluster_logs", cluster.cluster, "logs")] : [link("job", job, "job"), " ", link("logs", job, "logs")]);
    const rows = replica.attempts.map((attempt) => el("tr", {},
      el("td", {}, `attempt ${attempt.attempt}`),
      el("td", {}, `${attempt.ended_at ? attempt.status || "ended" : attempt.secondary || "started"}${attempt.failure_class ? `: ${attempt.failure_class}` : ""}`),
      el("td", {}, ...prose(attempt.reason || "–")),
      el("td", {}, attempt.launched_at ? `${clockTime(attempt.launched_at)}, ${duration(Math.max(0, (attempt.ended_at ? model.since(attempt.ended_at) : model.span) - model.since(attempt.launched_at)))}` : "–"),
      el("td", {}, attempt.instance_type ?? "–", attempt.cluster ? el("small", {}, placeWords(attempt.cluster)) : null, attempt.where ? el("small", {}, `${placeText(attempt.where)}: ${attempt.where.why}`) : null),
      el("td", {}, ...(hasJob(attempt) ? links(attempt) : ["no job"]))));
    const heads = ["attempt", "end", "reason", "time", "instance", "console"].map((name) => el("th", { scope: "col" }, name));
    const metrics = Object.entries(replica.metrics ?? {}).filter(([name]) => name !== "round").map(([name, value]) => `${name} ${short(value)}`);
    const more = [replica.problem, replica.finished_early, metrics.join(", "), replica.checkpoint_uri, replica.artifacts].filter(Boolean);
    return el("tr", { class: "details", role: "row" }, el("td", { colspan: 8, role: "cell" }, el("div", { class: "inner" },
      splitBar(spent, `Where the time of replica ${replica.rank} went`),
      el("table", { class: "attempts", "aria-label": `Attempts of replica ${replica.rank}` }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
      ...replica.attempts.filter((attempt) => attempt.last_lines?.length).map((attempt) => lastLines(model, replica, attempt, true)),
      ...more.map((text) => el("p", { class: "uris" }, text)))));
  }

  drawPages(count) {
    const last = Math.ceil(count / PAGE_ROWS) - 1;
    byId("filter").hidden = this.model.replicas.length <= 8;
    const step = (by) => () => { this.page += by; this.draw(); };
    byId("pages").replaceChildren(...(last < 1 ? [] : [
      el("button", { type: "button", "data-focus": "previous", disabled: this.page === 0, onclick: step(-1) }, "previous"),
      el("span", {}, `${this.page * PAGE_ROWS + 1}–${Math.min(count, (this.page + 1) * PAGE_ROWS)} of ${count}`),
      el("button", { type: "button", "data-focus": "next", disabled: this.page === last, onclick: step(1) }, "next")]));
  }

  /** Says what is under the pointer. */
  point(event) {
    const found = this.bars.find(([canvas]) => canvas === event.target);
    this.tip.hidden = true;
    if (!found) return;
    const [canvas, parts] = found;
    const box = canvas.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.model.span;
    const near = (3 / box.width) * this.model.span;
    const part = parts.find((one) => MARKS.has(one.phase) && Math.abs(one.from - at) < near) ?? parts.find((one) => !MARKS.has(one.phase) && one.from <= at && at <= one.to);
    if (!part) return;
    this.tip.textContent = MARKS.has(part.phase) ? part.what : `${part.what}, ${duration(part.to - part.from)}`;
    this.tip.hidden = false;
    const width = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, document.documentElement.clientWidth - width - 8)) + scrollX}px`;
    this.tip.style.top = `${box.bottom + 4 + scrollY}px`;
  }

  /** All replicas at once, in the order of the table's ranks, with at most one line each. */
  drawOverview() {
    const { replicas } = this.model;
    if (replicas.length < MANY) { byId("overview").replaceChildren(); return; }
    if (this.overviewOf !== this.model || this.overviewIn !== css("--card")) this.paintOverview();
  }

  paintOverview() {
    const { model } = this;
    const { replicas } = model;
    [this.overviewOf, this.overviewIn] = [model, css("--card")];
    const height = Math.min(replicas.length, 360);
    const width = 1000;
    const canvas = el("canvas", { width, height, role: "img", "aria-label": `All ${replicas.length} replicas over time; the table below has the same data` });
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    const colours = inks();
    // Of several replicas in one line of the picture, one is shown; the end of an attempt always is.
    const lines = Math.min(replicas.length, height);
    const thick = height / lines;
    const chosen = new Set(Array.from({ length: lines }, (_, line) => Math.floor((line * replicas.length) / lines)));
    const broken = [];
    replicas.forEach((replica, index) => {
      const isShown = chosen.has(index);
      const isBroken = replica.attempts.some((attempt) => attempt.ended_at && attempt.status !== "Completed" && !hasLeft(model, attempt));
      if (!isShown && !isBroken) return;
      const y = Math.floor((index * lines) / replicas.length) * thick;
      for (const part of segments(model, replica)) {
        const x = (Math.min(Math.max(part.from, 0), model.span) / model.span) * width;
        if (part.phase === "broken") broken.push([x, y]);
        else if (isShown && !MARKS.has(part.phase) && part.phase !== "parked") {
          context.fillStyle = colours[part.phase];
          context.fillRect(x, y, Math.max(0.5, ((part.to - part.from) / model.span) * width), thick);
        }
      }
    });
    context.fillStyle = colours.broken;
    for (const [x, y] of broken) context.fillRect(x - 1, y - 0.5, 4, Math.max(2.5, thick));
    byId("overview").replaceChildren(el("p", { class: "quiet" }, "All replicas, rank 0 at the top. Click to go to a replica."), canvas);
  }

  jump(event) {
    const canvas = event.target.closest("canvas");
    if (!canvas) return;
    const count = this.model.replicas.length;
    const index = Math.min(count - 1, Math.max(0, Math.floor((event.offsetY / canvas.clientHeight) * count)));
    byId("which").value = "all";
    byId("find").value = "";
    this.order = { name: "rank", up: true };
    this.page = Math.floor(index / PAGE_ROWS);
    this.draw();
    focusOn(`replica-${this.model.replicas[index].rank}`);
  }
}

/** Where an attempt of a run over places was. */
function placeText({ place = HOME, spot }) {
  const words = place === HOME ? "at home" : `in ${place}`;
  return spot ? `${words}, spot` : words;
}

/** Where on a cluster a job is, and how the operator runs it. */
function placeWords({ cluster, namespace, queue, instances, restarts }) {
  return [
    `on ${cluster}`, namespace ? `namespace ${namespace}` : "", queue ? `queue ${queue}` : "",
    instances ? `${instances} instance${instances === 1 ? "" : "s"}` : "", restarts ? `restarted ×${restarts} by the operator` : "",
  ].filter(Boolean).join(", ");
}

/** `quota, infrastructure ×5`. */
function counted(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, count]) => (count > 1 ? `${name} ×${count}` : name)).join(", ");
}

/** Seconds by phase as one bar, with the shares in words below it. */
function splitBar(spent, label) {
  const names = Object.keys(PHASES).filter((name) => spent[name] > 0);
  const total = names.reduce((sum, name) => sum + spent[name], 0);
  if (!total) return null;
  const canvas = el("canvas", { class: "split", role: "img", "aria-label": `${label}: ${names.map((name) => `${PHASES[name].words} ${percent(spent[name] / total)}`).join(", ")}` });
  const paint = () => {
    const colours = inks();
    const context = sized(canvas, canvas.clientWidth, 12);
    let x = 0;
    for (const name of names) {
      const width = (spent[name] / total) * canvas.clientWidth;
      context.fillStyle = colours[name];
      context.fillRect(x, 0, Math.max(0.5, width), 12);
      x += width;
    }
  };
  new ResizeObserver(paint).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (canvas.isConnected) paint(); });
  return el("div", { class: "where" }, canvas, el("ul", { class: "legend" }, ...names.map((name) => el("li", {}, el("i", { class: `key ${name}` }), `${PHASES[name].words} `, el("b", {}, percent(spent[name] / total)), ` ${duration(spent[name])}`))));
}

/** The last lines that a failed attempt has written, and the command that shows more. */
function lastLines(model, replica, attempt, open) {
  const command = `muster logs ${model.data.run} --rank ${replica.rank}`;
  const text = el("pre", { tabindex: 0 }, attempt.last_lines.join("\n"));
  // The end says why: the traceback and the error.
  new ResizeObserver(() => { text.scrollTop = text.scrollHeight; }).observe(text);
  return el("details", { class: "lines", open },
    el("summary", {}, `The last ${attempt.last_lines.length} lines of replica ${replica.rank}, attempt ${attempt.attempt}`),
    text,
    el("p", { class: "quiet" }, "More: ", el("code", {}, command)));
}
