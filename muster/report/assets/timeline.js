"use strict";
// Replicas over time: one row with a bar for each, and for many replicas an overview.

const PAGE_ROWS = 50;
const MANY = 60; // replicas from which on there is an overview
const WIDTH = 1000; // of a bar, in its own units
const PHASES = {
  waiting: ["Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack", "Interrupted", "Restarting"],
  loading: ["Downloading", "DownloadingTrainingImage"],
  training: ["Training"],
  saving: ["Uploading", "Stopping"],
};
const PHASE_OF = new Map(Object.entries(PHASES).flatMap(([phase, names]) => names.map((name) => [name, phase])));
const ENDED = new Set(["Completed", "Failed", "Stopped"]);
// An attempt whose request was refused never had a job (muster/contract/run/attempt.py).
const hasJob = (attempt) => attempt.secondary !== "NotCreated";

const FILTERS = {
  all: ["all replicas", () => true],
  rerun: ["rerun replicas", (replica) => (replica.attempts ?? []).length > 1],
  trouble: ["replicas that have not succeeded", (replica) => !["succeeded", "Completed"].includes(replica.state)],
};

/** The history of a replica, in order: `{from, to, phase, what}` in seconds from the run's start. */
function segments(model, replica) {
  const found = [];
  let free = null; // since when the replica has no job, and why
  for (const attempt of replica.attempts ?? []) {
    if (!attempt.launched_at) {
      // Refused before there was a job, at an unknown time.
      free ??= { at: 0, why: `waits for ${attempt.failure_class ?? "capacity or quota"}` };
      continue;
    }
    const from = model.since(attempt.launched_at);
    const to = attempt.ended_at ? model.since(attempt.ended_at) : model.span;
    if (free !== null && from > free.at) found.push({ from: free.at, to: from, phase: "waiting", what: free.why });
    if (!hasJob(attempt)) found.push({ from, to: Math.max(from, to), phase: "waiting", what: `waits: ${attempt.failure_class ?? "no job yet"}` });
    else phases(model, attempt, from, to, found);
    if (attempt.ended_at && attempt.status !== "Completed") {
      const why = attempt.failure_class ?? attempt.status ?? "unknown";
      found.push({ from: to, to, phase: "broken", what: `attempt ${attempt.attempt} ended: ${why}` });
      free = { at: to, why: `waits for a rerun after ${why}` };
    } else free = null;
  }
  if (free !== null && !model.data.ended_at) found.push({ from: free.at, to: model.span, phase: "waiting", what: free.why });
  return found;
}

function phases(model, attempt, from, to, found) {
  const steps = (attempt.history ?? []).filter((step) => !ENDED.has(step.secondary));
  let at = from;
  let name = steps.length ? "Starting" : attempt.ended_at ? "Training" : attempt.secondary || "Starting";
  for (const step of steps) {
    const next = Math.min(to, Math.max(at, model.since(step.at)));
    if (step.secondary === name) continue;
    if (next > at) found.push({ from: at, to: next, phase: PHASE_OF.get(name) ?? "other", what: name });
    at = next;
    name = step.secondary;
  }
  if (to > at) found.push({ from: at, to, phase: PHASE_OF.get(name) ?? "other", what: name });
}

/** A bar in words, for screen readers. */
function spoken(replica, parts) {
  const words = parts.map((part) => (part.phase === "broken" ? part.what : `${part.what} ${duration(part.to - part.from)}`));
  return `Replica ${replica.rank}, ${replica.state}: ${words.join(", ") || "not launched"}`;
}

function bar(model, replica) {
  const parts = segments(model, replica);
  const x = (seconds) => (Math.min(Math.max(seconds, 0), model.span) / model.span) * WIDTH;
  const label = spoken(replica, parts);
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} 26`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  for (const part of parts.filter((part) => part.phase !== "broken")) {
    const shape = svg("rect", { class: `bar-${part.phase}`, x: x(part.from).toFixed(2), y: 5, width: Math.max(0.5, x(part.to) - x(part.from)).toFixed(2), height: 16 });
    shape.append(svg("title", {}, `${part.what}: ${duration(part.to - part.from)}`));
    root.append(shape);
  }
  root.append(...ticks(model, replica, x));
  for (const part of parts.filter((part) => part.phase === "broken")) {
    const shape = svg("rect", { class: "bar-broken", x: Math.max(0, x(part.from) - 2).toFixed(2), y: 1, width: 4, height: 24 });
    shape.append(svg("title", {}, part.what));
    root.append(shape);
  }
  return root;
}

/** The rounds of which a replica was a member, if there is space for them. */
function ticks(model, replica, x) {
  const { numbers, at, metrics } = model.rounds;
  const metric = metrics[0];
  if (!metric || numbers.length > WIDTH / 6 || metric.bucket > 1) return [];
  return at
    .filter((_, index) => !Number.isNaN(model.value(metric, replica.rank, index)))
    .map((seconds) => svg("line", { class: "tick in-bar", x1: x(seconds).toFixed(2), x2: x(seconds).toFixed(2), y1: 8, y2: 18, "vector-effect": "non-scaling-stroke" }));
}

/** The axis, with a tick for every committed round. */
function axis(model) {
  const root = svg("svg", { class: "axis", height: 20, role: "img", "aria-label": `Time from the start of the run: ${duration(model.span)}, ${model.rounds.numbers.length} rounds committed` });
  const step = niceStep(model.span / 4);
  for (let at = 0; at <= model.span * 0.97; at += step) {
    const x = `${((at / model.span) * 100).toFixed(3)}%`;
    root.append(svg("line", { x1: x, x2: x, y1: 14, y2: 20 }), svg("text", { x, y: 11, "text-anchor": at ? "middle" : "start" }, at ? duration(at) : "start"));
  }
  const most = Math.min(model.rounds.at.length, 250);
  for (let index = 0; index < most; index += 1) {
    const at = model.rounds.at[Math.floor((index * model.rounds.at.length) / most)];
    const x = `${((Math.min(Math.max(at, 0), model.span) / model.span) * 100).toFixed(3)}%`;
    root.append(svg("line", { class: "tick", x1: x, x2: x, y1: 15, y2: 20 }));
  }
  return root;
}

function niceStep(rough) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  return steps.find((step) => step >= rough) ?? Math.ceil(rough / 86400) * 86400;
}

/** The table of replicas with its filter, its pages and the details of open replicas. */
class Timeline {
  constructor(model, onSelect) {
    this.model = model;
    this.onSelect = onSelect;
    this.page = 0;
    this.open = new Set();
    const which = byId("which");
    for (const [name, [label]] of Object.entries(FILTERS)) which.append(el("option", { value: name }, label));
    const change = () => { this.page = 0; this.draw(); };
    which.addEventListener("change", change);
    byId("rank").addEventListener("input", change);
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    byId("overview").addEventListener("click", (event) => this.jump(event));
  }

  update(model) {
    this.model = model;
    this.draw();
  }

  shown() {
    const rank = byId("rank").value.trim();
    const accepts = FILTERS[byId("which").value][1];
    return this.model.replicas.filter((replica) => accepts(replica) && (rank === "" || String(replica.rank) === rank));
  }

  draw() {
    keepingFocus(() => this.drawAll());
  }

  drawAll() {
    const rows = this.shown();
    this.page = Math.min(this.page, Math.max(0, Math.ceil(rows.length / PAGE_ROWS) - 1));
    const some = rows.slice(this.page * PAGE_ROWS, (this.page + 1) * PAGE_ROWS);
    const head = el("tr", { role: "row" },
      ...["replica", "state"].map((name) => el("th", { scope: "col", role: "columnheader" }, name)),
      el("th", { scope: "col", role: "columnheader", class: "time" }, axis(this.model)),
      ...["round", "cost"].map((name) => el("th", { scope: "col", role: "columnheader", class: "number" }, name)));
    const body = el("tbody", { role: "rowgroup" }, ...some.flatMap((replica) => this.row(replica)));
    const table = el("table", { class: "replicas", role: "table", "aria-label": `Replicas ${rows.length ? `${this.page * PAGE_ROWS + 1} to ${this.page * PAGE_ROWS + some.length} of ${rows.length}` : "(none match)"}` },
      el("thead", { role: "rowgroup" }, head), body);
    const pattern = svg("svg", { width: 0, height: 0, "aria-hidden": "true" },
      svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("line", { class: "hatch", x1: 1, x2: 1, y1: 0, y2: 6 }))));
    byId("replicas").replaceChildren(pattern, some.length ? table : el("p", { class: "none" }, "No replica matches."));
    this.drawPages(rows.length);
    this.drawOverview();
  }

  row(replica) {
    const opened = this.open.has(replica.rank);
    const usd = (replica.usd ?? []).reduce((sum, cost) => sum + (cost ?? 0), 0);
    const rate = this.model.rounds.pace?.by_rank?.[replica.rank] ?? null;
    const after = (replica.attempts ?? []).slice(0, -1).map((attempt) => attempt.failure_class ?? "unknown");
    const toggle = () => {
      if (!this.open.delete(replica.rank)) this.open.add(replica.rank);
      this.draw();
      this.onSelect([...this.open]);
    };
    const cell = (attributes, ...children) => el("td", { role: "cell", ...attributes }, ...children);
    const line = el("tr", { role: "row" },
      cell({ class: "rank" }, el("button", { type: "button", "data-focus": `replica-${replica.rank}`, "aria-expanded": String(opened), "aria-label": `Replica ${replica.rank}, details`, onclick: toggle }, `${opened ? "▾" : "▸"} ${replica.rank}`)),
      cell({}, el("span", { class: `state-${replica.state.replace(/\W/g, "")}` }, replica.state), after.length ? el("small", {}, `rerun after ${after.join(", ")}`) : null),
      cell({ class: "time" }, bar(this.model, replica)),
      cell({ class: "number" }, replica.round === undefined || replica.round === null ? "–" : String(replica.round), rate === null ? null : el("small", {}, `${short(rate)}/s`)),
      cell({ class: "number" }, usd ? `$${usd >= 1 ? usd.toFixed(2) : usd.toFixed(4)}` : "–"));
    return opened ? [line, this.details(replica)] : [line];
  }

  details(replica) {
    const link = (kind, job, text) => el("a", { href: this.model.job(kind, job), rel: "noreferrer", target: "_blank" }, text);
    const rows = (replica.attempts ?? []).map((attempt) => el("tr", {},
      el("td", {}, `attempt ${attempt.attempt}`),
      el("td", {}, [attempt.status || "not ended", attempt.failure_class].filter(Boolean).join(": ")),
      el("td", {}, attempt.reason || "–"),
      el("td", {}, `${clockTime(attempt.launched_at)} to ${clockTime(attempt.ended_at)}`),
      el("td", {}, attempt.instance_type ?? "–"),
      el("td", {}, ...(hasJob(attempt) ? [link("job", attempt.job, "job"), " ", link("logs", attempt.job, "logs")] : ["no job"]))));
    const heads = ["attempt", "end", "reason", "time", "instance", "console"].map((name) => el("th", { scope: "col" }, name));
    const metrics = Object.entries(replica.metrics ?? {}).filter(([name]) => name !== "round").map(([name, value]) => `${name} ${short(value)}`);
    const more = [replica.problem, replica.finished_early, metrics.join(", "), replica.checkpoint_uri, replica.artifacts].filter(Boolean);
    return el("tr", { class: "details", role: "row" }, el("td", { colspan: 5, role: "cell" },
      el("table", { class: "attempts", "aria-label": `Attempts of replica ${replica.rank}` }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
      ...more.map((text) => el("p", { class: "uris" }, text))));
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

  /** All replicas at once, with at most one line each. */
  drawOverview() {
    const { replicas } = this.model;
    if (replicas.length < MANY) { byId("overview").replaceChildren(); return; }
    const height = Math.min(replicas.length, 360);
    const canvas = el("canvas", { width: WIDTH, height, role: "img", "aria-label": `All ${replicas.length} replicas over time; the table below has the same data` });
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    const colours = Object.fromEntries(["waiting", "loading", "training", "saving", "broken"].map((name) => [name, css(`--${name}`)]));
    const line = height / replicas.length;
    const broken = [];
    replicas.forEach((replica, index) => {
      for (const part of segments(this.model, replica)) {
        const x = (Math.max(part.from, 0) / this.model.span) * WIDTH;
        if (part.phase === "broken") { broken.push([x, index]); continue; }
        context.fillStyle = colours[part.phase] ?? css("--quiet");
        context.fillRect(x, index * line, Math.max(1, ((part.to - part.from) / this.model.span) * WIDTH), Math.max(line, 0.6));
      }
    });
    context.fillStyle = colours.broken;
    for (const [x, index] of broken) context.fillRect(x - 1, index * line - 0.5, 4, Math.max(2.5, line));
    byId("overview").replaceChildren(el("p", { class: "quiet" }, "All replicas, rank 0 at the top. Click to go to a replica."), canvas);
  }

  jump(event) {
    const canvas = event.target.closest("canvas");
    if (!canvas) return;
    const count = this.model.replicas.length;
    const index = Math.min(count - 1, Math.max(0, Math.floor((event.offsetY / canvas.clientHeight) * count)));
    byId("which").value = "all";
    byId("rank").value = "";
    this.page = Math.floor(index / PAGE_ROWS);
    this.draw();
    focusOn(`replica-${this.model.replicas[index].rank}`);
  }
}
