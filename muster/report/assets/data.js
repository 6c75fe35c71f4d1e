"use strict";
// The data of the page and its elements. All data of a run becomes text: elements are created here, never parsed.

const NONE = 255; // in a byte: no value
const STEPS = 254; // in a byte: from the least to the greatest value
const FULL = 255; // in a byte: a share of 1

// What a replica does, in the order of the legend: its words and its colour (in page.css). `hatched` is no work.
const PHASES = {
  capacity: { words: "launching or waiting for capacity", hatched: true },
  starting: { words: "downloading image and data" },
  loading: { words: "loading" },
  training: { words: "training" },
  waiting: { words: "waiting for other replicas" },
  exchanging: { words: "exchanging" },
  saving: { words: "saving" },
  other: { words: "starting or ending the program", hatched: true },
};
// muster/contract/run/time_use.py
const ACTIVITIES = ["training", "waiting", "exchanging", "saving", "loading"];

/** An element with attributes and children; strings become text. */
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A text, of which what stands between backticks is code. */
const prose = (text) => text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? el("code", {}, part) : part));

/** Redraws and keeps the keyboard focus. */
function keepingFocus(draw) {
  const name = document.activeElement?.dataset.focus;
  draw();
  if (name) focusOn(name);
}

function focusOn(name) {
  document.querySelector(`[data-focus="${CSS.escape(name)}"]`)?.focus();
}

const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Seconds as `1 min 7 s`. */
function duration(seconds) {
  if (seconds < 59.95) return `${seconds < 9.95 ? +seconds.toPrecision(2) : Math.round(seconds * 10) / 10} s`;
  const parts = [];
  let rest = Math.round(seconds);
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || parts.length) parts.push([count, name]);
  }
  return parts.slice(0, 2).filter(([count]) => count).map(([count, name]) => `${count} ${name}`).join(" ");
}

/** Seconds in a column of figures: tenths, or minutes. */
const seconds1 = (value) => (value === null || value === undefined ? "–" : value < 600 ? value.toFixed(1) : duration(value));
const percent = (share) => `${share > 0 && share < 0.005 ? "<1" : Math.round(share * 100)}%`;

/** A number as people read it. */
function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return `${+value.toPrecision(4)}`;
}

/** A large number as people read it: `1.2M`. */
function large(value) {
  const [size, sign] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([one]) => Math.abs(value) >= one) ?? [1, ""];
  return value === null || value === undefined ? "–" : `${short(+(value / size).toPrecision(3))}${sign}`;
}

const clockTime = (iso) => (iso ? `${iso.slice(0, 19).replace("T", " ")} UTC` : "–");

/** Steps of an axis from 0 to about `most`: 1, 2 or 5 times a power of ten. */
function niceTicks(most, count = 4) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  return Array.from({ length: Math.floor(most / step + 1.001) }, (_, index) => +(index * step).toPrecision(12));
}

/** A drawing on a canvas in CSS pixels, sharp on every screen. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The colours of all phases in the present scheme, to draw with. */
function inks() {
  const found = {};
  for (const [name, { hatched }] of Object.entries(PHASES)) found[name] = hatched ? hatch(css(`--${name}`)) : css(`--${name}`);
  return { ...found, parked: css("--line"), broken: css("--broken"), text: css("--text"), quiet: css("--quiet"), line: css("--line"), card: css("--card") };
}

function hatch(colour) {
  const tile = el("canvas", { width: 6, height: 6 });
  const context = tile.getContext("2d");
  context.strokeStyle = colour;
  context.lineWidth = 2;
  for (const shift of [-6, 0, 6]) {
    context.beginPath();
    context.moveTo(shift, 6);
    context.lineTo(shift + 6, 0);
    context.stroke();
  }
  return context.createPattern(tile, "repeat");
}

/** The data of the page, which is JSON as gzip in base64 (muster/report/page_html.py). */
async function unpacked(text) {
  const json = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(json).json();
}

/** A run with the values derived from its data. */
class Model {
  constructor(data) {
    this.data = data;
    this.replicas = data.replicas;
    for (const replica of this.replicas) replica.attempts ??= [];
    this.rounds = { total: 0, numbers: [], at: [], seconds: [], waited_for: [], members: [], excluded: [], absent: [], rates: [], unit: "samples", metrics: [], ...data.rounds };
    this.start = Date.parse(data.started_at);
    this.end = Date.parse(data.ended_at ?? data.made_at);
    this.span = Math.max(1, (this.end - this.start) / 1000);
    this.decoded = new Map();
    const { at, seconds, numbers } = this.rounds;
    /** When each round began, in seconds from the run's start. */
    this.begins = at.map((end, index) => (index ? at[index - 1] : seconds[0] === null || seconds[0] === undefined ? end : 0));
    const times = this.rounds.times;
    this.shares = times ? bytesOf(times.shares) : null;
    this.bucket = times?.bucket ?? 1;
    this.buckets = Math.ceil(numbers.length / this.bucket);
  }

  /** Seconds from the run's start. */
  since(iso) {
    return (Date.parse(iso) - this.start) / 1000;
  }

  /** When the seat of a replica was not wanted, as `[from, to]`; of other runs never. */
  parkedTimes(rank) {
    const { seats } = this.data;
    if (!seats) return [];
    const found = [];
    let [isOpen, until] = [hasRank(seats.open, rank), this.span];
    const add = (from) => { if (!isOpen && until > from) found.unshift([from, until]); };
    for (const change of [...(seats.changes ?? [])].reverse()) {
      const at = Math.min(until, Math.max(0, this.since(change.at)));
      add(at);
      until = at;
      isOpen = (isOpen || hasRank(change.closed, rank)) && !hasRank(change.opened, rank);
    }
    add(0);
    return found;
  }

  job(kind, name) {
    return (this.data.links[kind] ?? "").replace(/\{job\}|\{cluster\}/, encodeURIComponent(name));
  }

  /** The share of each activity of a replica in a bucket of rounds, in the order of ACTIVITIES. */
  sharesOf(rank, bucket) {
    const at = (rank * this.buckets + bucket) * ACTIVITIES.length;
    return this.shares.subarray(at, at + ACTIVITIES.length);
  }

  /** The seconds of an activity of a replica in all rounds. */
  secondsOf(rank, activity) {
    return this.rounds.times?.by_rank[ACTIVITIES.indexOf(activity)][rank] ?? 0;
  }

  /** In how many rounds the others waited for a replica, and for how many seconds in all. */
  waitedFor(rank) {
    const use = this.rounds.time_use;
    return [use?.last?.[rank] ?? 0, (use?.held_up?.[rank] ?? 0) / 1000];
  }

  /** The values of one metric by rank and bucket of rounds; decoded at the first use. */
  cells(metric) {
    if (!this.decoded.has(metric.name)) this.decoded.set(metric.name, decode(metric));
    return this.decoded.get(metric.name);
  }

  columns(metric) {
    return Math.ceil(this.rounds.numbers.length / metric.bucket);
  }

  /** The value of `rank` in the round at `index`, NaN for none. */
  value(metric, rank, index) {
    const values = this.cells(metric);
    return values[rank * this.columns(metric) + Math.floor(index / metric.bucket)] ?? NaN;
  }
}

/** Whether a text such as `0-7,9` names a rank. */
const hasRank = (text, rank) => (text || "").split(",").filter(Boolean).some((part) => { const [first, last = first] = part.split("-").map(Number); return first <= rank && rank <= last; });

function bytesOf(base64) {
  const binary = atob(base64 ?? "");
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

function decode(metric) {
  const bytes = bytesOf(metric.cells);
  if (metric.bits === 32) {
    const view = new DataView(bytes.buffer);
    return Float32Array.from({ length: bytes.length / 4 }, (_, index) => view.getFloat32(index * 4, true));
  }
  const scale = (metric.greatest - metric.least) / STEPS;
  const values = new Float32Array(bytes.length);
  for (let index = 0; index < bytes.length; index += 1)
    values[index] = bytes[index] === NONE ? NaN : metric.least + bytes[index] * scale;
  return values;
}
