"use strict";
// The duration of each round as a bar, divided by what its members did, and who came last.

const CHART_HEIGHT = 260;
const LEFT = 56;
const BOTTOM = 48;
const STRIP = 12; // the height of the strip that shows who was last
const OUTLIER = 3; // a first round that is so many times as long as the longest of the others is cut

class RoundBars {
  constructor(model) {
    this.at = 0;
    this.canvas = el("canvas", { class: "bar rounds", tabindex: 0, "data-focus": "rounds", role: "application", "aria-roledescription": "chart" });
    this.caption = el("figcaption");
    this.readout = el("p", { class: "readout", "aria-live": "polite" });
    this.table = el("details", {}, el("summary", {}, "Show as a table"));
    byId("round-chart").replaceChildren(this.caption, this.canvas, this.readout, this.table);
    this.table.addEventListener("toggle", () => this.fillTable());
    this.canvas.addEventListener("pointermove", (event) => this.read(this.indexAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this.read(this.at + moves[event.key]);
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.update(model);
  }

  update(model) {
    this.model = model;
    const { numbers, seconds, times } = model.rounds;
    // The replicas of a sweep have rounds of their own.
    const isShown = numbers.length > 0 && !model.data.sweep;
    byId("rounds").hidden = !isShown;
    if (!isShown) return;
    this.parts = numbers.map((_, index) => this.partsOf(index));
    const totals = seconds.map((one) => one ?? 0);
    const others = Math.max(0, ...totals.slice(1));
    this.cut = others > 0 && totals[0] > OUTLIER * others;
    this.most = this.cut ? others * 1.25 : Math.max(...totals, 0.001);
    this.caption.textContent = times
      ? "Duration of each round in seconds, divided by what its members did, on average. The strip below shows for whom the others waited."
      : "Duration of each round, in seconds.";
    this.canvas.setAttribute("aria-label", `Duration of ${numbers.length} rounds, the last one ${duration(totals.at(-1))}. Use the arrow keys to read single rounds.`);
    this.fillTable();
    this.paint();
    this.readout.textContent = "";
  }

  /** What a round consists of: `[phase, seconds]`, from below. The first round began with the launch of the jobs. */
  partsOf(index) {
    const { seconds, times } = this.model.rounds;
    const total = seconds[index] ?? 0;
    if (!times) return [["training", total]];
    const mean = Object.fromEntries(ACTIVITIES.map((name, at) => [name, times.means[at]?.[index] ?? 0]));
    const known = ORDER.map((name) => [name, mean[name]]);
    const sum = known.reduce((before, [, one]) => before + one, 0);
    if (!sum) return [["other", total]];
    const scale = total ? Math.min(1, total / sum) : 1;
    const parts = ["training", "exchanging", "saving", "loading", "waiting"].map((name) => [name, mean[name] * scale]);
    const rest = total - sum * scale;
    return rest > 0.02 * total ? [...parts, [index ? "other" : "capacity", rest]] : parts;
  }

  x(index) {
    return LEFT + ((index + 0.5) / this.model.rounds.numbers.length) * (this.canvas.clientWidth - LEFT - 4);
  }

  indexAt(offset) {
    const count = this.model.rounds.numbers.length;
    return Math.floor(((offset - LEFT) / (this.canvas.clientWidth - LEFT - 4)) * count);
  }

  paint() {
    if (!this.parts || !this.canvas.clientWidth) return;
    const { numbers, seconds, waited_for: waitedFor } = this.model.rounds;
    const width = this.canvas.clientWidth;
    const context = sized(this.canvas, width, CHART_HEIGHT);
    const colours = inks();
    const floor = CHART_HEIGHT - BOTTOM;
    const y = (value) => floor - (Math.min(value, this.most) / this.most) * (floor - 18);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    const ticks = niceTicks(this.most);
    for (const tick of ticks) {
      context.fillStyle = colours.line;
      context.fillRect(LEFT, y(tick), width - LEFT, 1);
      context.fillStyle = colours.quiet;
      context.fillText(tick === 0 ? "0" : `${tick} s`, LEFT - 6, y(tick) + 4);
    }
    const room = (width - LEFT - 4) / numbers.length;
    const bar = Math.max(0.6, room > 4 ? room - Math.min(6, room * 0.2) : room);
    this.parts.forEach((parts, index) => {
      let below = 0;
      for (const [phase, value] of parts) {
        context.fillStyle = colours[phase];
        const [top, bottom] = [y(below + value), y(below)];
        context.fillRect(this.x(index) - bar / 2, top, bar, bottom - top);
        below += value;
      }
      const whom = waitedFor[index];
      if (whom !== null && whom !== undefined && this.model.replicas.length > 1) {
        context.fillStyle = rankColour(whom);
        context.fillRect(this.x(index) - bar / 2, floor + 6, bar, STRIP);
        const label = String(whom);
        if (context.measureText(label).width < bar - 2) {
          context.fillStyle = "#fff";
          context.textAlign = "center";
          context.fillText(label, this.x(index), floor + 16);
        }
      }
    });
    context.fillStyle = colours.text;
    if (this.cut) {
      context.textAlign = "left";
      context.fillText(`↑ round ${numbers[0]}: ${duration(seconds[0])}, with the launch`, Math.max(LEFT, this.x(0) - bar / 2), 12);
    }
    context.fillStyle = colours.quiet;
    context.textAlign = "center";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * room >= 34) ?? Math.ceil(34 / room);
    numbers.forEach((number, index) => {
      const isShown = this.model.rounds.total === numbers.length ? number === 1 || number % every === 0 : index % every === 0;
      if (isShown && (number === 1 || index * room > 26 || !index)) context.fillText(String(number), this.x(index), floor + STRIP + 20);
    });
    context.textAlign = "right";
    context.fillText("round", LEFT - 6, floor + STRIP + 20);
    if (this.model.replicas.length > 1 && waitedFor.some((one) => one !== null && one !== undefined)) context.fillText("last", LEFT - 6, floor + 16);
  }

  /** One round in words. */
  words(index) {
    const { numbers, seconds, waited_for: waitedFor, members } = this.model.rounds;
    const parts = this.parts[index].filter(([, value]) => value >= 0.0005).map(([phase, value]) => `${this.named(phase, index)} ${duration(value)}`);
    const whom = waitedFor[index];
    const last = whom === null || whom === undefined || this.model.replicas.length < 2 ? "" : `; replica ${whom} was the last`;
    return `round ${numbers[index]}: ${seconds[index] === null ? "–" : duration(seconds[index])}, ${members[index]} replicas: ${parts.join(", ")}${last}`;
  }

  named(phase, index) {
    return phase === "capacity" && !index ? "launch" : PHASES[phase].words;
  }

  read(index) {
    this.at = Math.min(Math.max(index, 0), this.parts.length - 1);
    this.readout.textContent = this.words(this.at);
  }

  fillTable() {
    while (this.table.children.length > 1) this.table.lastChild.remove();
    if (!this.table.open) return;
    const { numbers, seconds, members, waited_for: waitedFor } = this.model.rounds;
    const step = Math.max(1, Math.ceil(numbers.length / TABLE_ROWS));
    const names = ["training", "exchanging", "saving", "loading", "waiting"];
    const rows = [];
    for (let index = 0; index < numbers.length; index += step) {
      const found = Object.fromEntries(this.parts[index]);
      rows.push(el("tr", {}, el("th", { scope: "row" }, String(numbers[index])), el("td", {}, seconds1(seconds[index])),
        ...names.map((name) => el("td", {}, found[name] === undefined ? "–" : found[name].toFixed(1))),
        el("td", {}, waitedFor[index] === null || waitedFor[index] === undefined ? "–" : String(waitedFor[index])), el("td", {}, String(members[index]))));
    }
    const heads = ["round", "seconds", ...names, "last", "replicas"].map((name) => el("th", { scope: "col" }, name));
    this.table.append(el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "figures" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows))));
  }
}

const rankColour = (rank) => RANK_COLOURS[rank % RANK_COLOURS.length];
