"use strict";
// The seats of an elastic run: how many were wanted when, how many took part in each round, and what that was worth.

const SEATS_HEIGHT = 190;
const SEATS_FOOT = 26;
const HOUR = 3600;

/** Seats in the same state, as `waiting for ml.p5.48xlarge (6-7), next look 12:40 UTC`. */
function groupWords({ state, ranks, reason, until }) {
  const why = !reason ? "" : state === "waiting" ? ` for ${reason}` : `, ${reason}`;
  return `${state}${why} (${ranks})${until ? `, next look ${until.slice(11, 16)} UTC` : ""}`;
}

/** `[seconds from the run's start, wanted since then]`, from the start to the end. */
function wantedSteps(model) {
  const { start, changes = [] } = model.data.seats;
  return [[0, start], ...changes.map((one) => [Math.min(Math.max(0, model.since(one.at)), model.span), one.replicas])];
}

class Seats {
  constructor(model) {
    this.at = 0;
    this.canvas = el("canvas", { class: "bar rounds", tabindex: 0, "data-focus": "seats", role: "application", "aria-roledescription": "chart", "aria-label": "Seats over time" });
    this.readout = el("p", { class: "readout", "aria-live": "polite" });
    this.table = el("details", {}, el("summary", {}, "Show as a table"));
    byId("seats-chart").replaceChildren(
      el("figcaption", {}, el("i", { class: "key training" }), "replicas that took part in a round ", el("i", { class: "key wanted" }), "replicas that were wanted"),
      this.canvas, this.readout, this.table);
    this.value = new Chart(byId("value-chart"), "");
    this.table.addEventListener("toggle", () => this.fillTable());
    this.canvas.addEventListener("pointermove", (event) => this.read(this.timeAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => {
      const times = this.times();
      const moves = { ArrowLeft: times.findLast((one) => one < this.at), ArrowRight: times.find((one) => one > this.at), Home: times[0], End: times.at(-1) };
      if (!(event.key in moves)) return;
      event.preventDefault();
      this.read(moves[event.key] ?? this.at);
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.update(model);
  }

  update(model) {
    this.model = model;
    const { seats } = model.data;
    byId("seats").hidden = !seats;
    if (!seats) return;
    this.steps = wantedSteps(model);
    byId("seat-groups").replaceChildren(...seats.groups.map((group) => el("li", {}, el("b", {}, group.count.toLocaleString("en")), ` ${groupWords(group)}`)));
    const wanted = this.steps.at(-1)[1];
    this.canvas.setAttribute("aria-label", `How many replicas were wanted and took part over ${duration(model.span)}: ${seats.start} wanted at the start, ${wanted} at last. Use the arrow keys to read single times.`);
    this.fillTable();
    this.drawValue();
    this.paint();
    this.readout.textContent = "";
  }

  /** When something changes: the ends of rounds, and the times of other numbers. */
  times() {
    return [...new Set([...this.steps.map(([at]) => at), ...this.model.rounds.at])].sort((a, b) => a - b);
  }

  x(seconds) {
    return LEFT + (Math.min(Math.max(seconds, 0), this.model.span) / this.model.span) * (this.canvas.clientWidth - LEFT - 4);
  }

  timeAt(offset) {
    return ((offset - LEFT) / (this.canvas.clientWidth - LEFT - 4)) * this.model.span;
  }

  paint() {
    if (!this.steps || !this.canvas.clientWidth) return;
    const { seats } = this.model.data;
    const { at, members } = this.model.rounds;
    const width = this.canvas.clientWidth;
    const context = sized(this.canvas, width, SEATS_HEIGHT);
    const colours = inks();
    const floor = SEATS_HEIGHT - SEATS_FOOT;
    const peak = Math.max(1, ...this.steps.map(([, count]) => count), ...members);
    const most = seats.most <= peak * 1.5 ? Math.max(peak, seats.most) : peak;
    const y = (count) => floor - (count / (most * 1.12)) * (floor - 4);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    for (const tick of niceTicks(most * 1.12).filter(Number.isInteger)) {
      context.fillStyle = colours.line;
      context.fillRect(LEFT, y(tick), width - LEFT, 1);
      context.fillStyle = colours.quiet;
      context.fillText(String(tick), LEFT - 6, y(tick) + 4);
    }
    context.fillStyle = colours.training;
    at.forEach((end, index) => {
      const [left, right] = [this.x(this.model.begins[index]), this.x(end)];
      const room = right - left;
      context.fillRect(left, y(members[index]), Math.max(0.6, room > 4 ? room - 1 : room), floor - y(members[index]));
    });
    this.paintLimits(context, colours, y, most);
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    context.beginPath();
    this.steps.forEach(([begin, count], index) => {
      context.lineTo(this.x(begin), y(count));
      context.lineTo(this.x(this.steps[index + 1]?.[0] ?? this.model.span), y(count));
    });
    context.stroke();
    context.fillStyle = colours.quiet;
    context.textAlign = "center";
    const step = niceStep(this.model.span / Math.max(2, Math.min(8, width / 110)));
    for (let time = 0; time <= this.model.span; time += step) {
      const text = time ? duration(time) : "start";
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(width - half, this.x(time)), floor + 18);
      context.fillRect(Math.min(width - 1, this.x(time)), floor, 1, 5);
    }
  }

  /** The fewest and the most replicas that are allowed, where they are in the picture. */
  paintLimits(context, colours, y, most) {
    const { seats } = this.model.data;
    context.save();
    context.setLineDash([4, 4]);
    context.strokeStyle = colours.quiet;
    context.textAlign = "left";
    for (const [count, name] of [[seats.least, "min"], [seats.most, "max"]]) {
      if (count > most) continue;
      context.beginPath();
      context.moveTo(LEFT, y(count));
      context.lineTo(this.canvas.clientWidth, y(count));
      context.stroke();
      // Above its line, which the line of what is wanted may cover, and on a ground of its own above the bars.
      const text = `${name} ${count}`;
      context.fillStyle = colours.card;
      context.fillRect(LEFT + 6, y(count) - 18, context.measureText(text).width + 8, 16);
      context.fillStyle = colours.quiet;
      context.fillText(text, LEFT + 10, y(count) - 6);
    }
    context.restore();
  }

  /** What was wanted at a time, and who took part then. */
  read(seconds) {
    this.at = Math.min(Math.max(seconds, 0), this.model.span);
    const { at, numbers, members } = this.model.rounds;
    const wanted = this.steps.findLast(([begin]) => begin <= this.at)[1];
    const index = at.findIndex((end, one) => this.model.begins[one] <= this.at && this.at <= end);
    const change = (this.model.data.seats.changes ?? []).find((one) => Math.abs(this.model.since(one.at) - this.at) < 0.001);
    const parts = [`${wanted} wanted`, index < 0 ? "in no round" : `${members[index]} took part in round ${numbers[index]}`, change ? changeWords(change) : ""];
    this.readout.textContent = `${duration(this.at)}: ${parts.filter(Boolean).join(", ")}`;
  }

  /** The times of other numbers. */
  fillTable() {
    const { changes = [] } = this.model.data.seats ?? {};
    this.table.hidden = !changes.length;
    while (this.table.children.length > 1) this.table.lastChild.remove();
    if (!this.table.open) return;
    const rows = changes.map((one) => el("tr", {}, el("th", { scope: "row" }, clockTime(one.at)),
      ...[String(one.replicas), one.opened || "–", one.closed || "–", one.by].map((text) => el("td", {}, text))));
    const heads = ["time", "wanted", "opened", "closed", "by"].map((name) => el("th", { scope: "col" }, name));
    this.table.append(el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "figures" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows))));
  }

  /** What counted an hour against what it cost an hour, by round. */
  drawValue() {
    const { numbers, rates, unit, at } = this.model.rounds;
    const spans = this.model.replicas.flatMap((replica) => billed(this.model, replica));
    byId("value-chart").hidden = numbers.length < 2 || !spans.length;
    if (byId("value-chart").hidden) return;
    const costs = at.map((end, index) => {
      const middle = (this.model.begins[index] + end) / 2;
      return spans.reduce((sum, one) => (one.from <= middle && middle < one.to ? sum + one.usd : sum), 0);
    });
    const hourly = numbers.map((_, index) => (rates[index] === null || rates[index] === undefined ? null : rates[index] * HOUR));
    const per = hourly.map((one, index) => (one && costs[index] ? one / costs[index] : null));
    const last = per.findLastIndex((one) => one !== null);
    const now = last < 0 ? "" : ` In round ${numbers[last]}, a dollar paid for ${large(per[last])} ${unit}.`;
    this.value.caption.textContent = `How many ${unit} counted an hour, and what the instances cost an hour, by round.${now}`;
    this.value.draw(`${unit} an hour and dollars an hour by round.${now}`, [
      { label: `${unit} an hour`, stroke: () => css("--training"), width: 2, value: (_, value) => large(value) },
      { label: "$ an hour", stroke: () => css("--waiting"), width: 2, dash: [6, 3], scale: "right", value: (_, value) => short(value) },
    ], [numbers, hourly, costs], { unit: `${unit} an hour`, right: "$ an hour", zero: true });
  }
}

/** What each attempt of a replica costs an hour, while it has an instance. */
function billed(model, replica) {
  return replica.attempts.flatMap((attempt, index) => {
    const usd = replica.usd?.[index];
    if (!usd || !attempt.launched_at) return [];
    const step = (attempt.history ?? []).find((one) => PHASE_OF.get(one.secondary) !== "capacity");
    const from = model.since(step?.at ?? attempt.launched_at);
    const to = attempt.ended_at ? model.since(attempt.ended_at) : model.span;
    return to > from ? [{ from, to, usd: (usd / (to - from)) * HOUR }] : [];
  });
}

const changeWords = ({ opened, closed }) => [opened ? `${opened} open` : "", closed ? `${closed} leave` : ""].filter(Boolean).join(", ");
