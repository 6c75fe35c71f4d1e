"use strict";
// The data of the page and its elements. All data of a run becomes text: elements are created here, never parsed.

const SVG = "http://www.w3.org/2000/svg";
const NONE = 255; // in a byte: no value
const STEPS = 254; // in a byte: from the least to the greatest value

/** An element with attributes and children; strings become text. */
function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

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
  if (seconds < 60) return `${+seconds.toPrecision(3)} s`;
  const parts = [];
  let rest = Math.floor(seconds);
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || parts.length) parts.push([count, name]);
  }
  return parts.slice(0, 2).filter(([count]) => count).map(([count, name]) => `${count} ${name}`).join(" ");
}

/** A number as people read it. */
function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return `${+value.toPrecision(4)}`;
}

const clockTime = (iso) => (iso ? `${iso.slice(0, 19).replace("T", " ")} UTC` : "–");

/** A run with the values derived from its data. */
class Model {
  constructor(data) {
    this.data = data;
    this.replicas = data.replicas ?? [];
    this.rounds = { numbers: [], at: [], seconds: [], blocked: [], members: [], excluded: [], absent: [], rates: [], unit: "samples", metrics: [], ...data.rounds };
    this.start = Date.parse(data.started_at);
    this.end = Date.parse(data.ended_at ?? data.made_at);
    this.span = Math.max(1, (this.end - this.start) / 1000);
    this.decoded = new Map();
  }

  /** Seconds from the run's start. */
  since(iso) {
    return (Date.parse(iso) - this.start) / 1000;
  }

  job(kind, name) {
    return this.data.links[kind].replace("{job}", encodeURIComponent(name));
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
    return values[rank * this.columns(metric) + Math.floor(index / metric.bucket)];
  }
}

function decode(metric) {
  const binary = atob(metric.cells ?? "");
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
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
