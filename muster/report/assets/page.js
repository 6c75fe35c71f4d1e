"use strict";
// Builds the page; a live page polls for newer data.

const POLL_MILLISECONDS = 2000;
const SHOWN_CHARACTERS = 200000;

const soon = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });

function drawHead(model) {
  const { data } = model;
  byId("run").textContent = data.run;
  byId("state").textContent = data.state;
  byId("state").dataset.state = data.state;
  byId("verdict").replaceChildren(...prose(data.verdict));
  const problems = data.problems ?? [];
  byId("why").hidden = !problems.length;
  byId("problems").replaceChildren(...problems.map((problem) => el("p", {}, ...prose(problem))));
  drawSplit(data);
  drawEvidence(model);
  document.title = `${data.run}: ${data.state}`;
  byId("facts").replaceChildren(...data.facts.map((fact) => el("div", {}, el("dt", {}, fact.label), el("dd", {}, fact.value, fact.note ? el("small", {}, fact.note) : null))));
  const link = (href, text) => el("a", { href, rel: "noreferrer", target: "_blank" }, text);
  byId("links").replaceChildren(
    link(data.links.execution, "The run in Step Functions"), " ",
    ...(trainingJobs(model) ? [link(data.links.run_jobs, "Its jobs in SageMaker"), " ", link(data.links.run_logs, "Their logs in CloudWatch")] : []),
    ...clustersOf(model).flatMap((name) => [" ", link(model.job("cluster", name), `The cluster ${name}`), " ", link(model.job("cluster_logs", name), "Logs of its pods in CloudWatch")]),
    ...(data.links.recipe ? [" ", link(data.links.recipe, "Its recipe in S3")] : []));
  byId("made").textContent = `Created ${clockTime(data.made_at)}; the time axis starts at ${clockTime(data.started_at)}.`;
}

/** The names of the clusters on which replicas have had jobs. */
const clustersOf = (model) => [...new Set(model.replicas.flatMap((replica) => replica.attempts.flatMap((attempt) => attempt.cluster?.cluster ?? [])))];
/** Whether a replica has, or will have, training jobs. */
const trainingJobs = (model) => model.replicas.some((replica) => !replica.attempts.some((attempt) => attempt.cluster));

/** Where the time of all replicas went. */
function drawSplit(data) {
  const { launching = 0, starting = 0, ...rest } = data.split ?? {};
  const spent = Object.fromEntries(Object.keys(PHASES).map((name) => [name, rest[name] ?? 0]));
  const bar = splitBar({ ...spent, capacity: launching, starting }, "Where the time of all replicas went");
  // The bar says what the first sentence says.
  const sentences = (data.time ?? []).slice(bar && data.split?.rounds ? 1 : 0);
  byId("where").hidden = !bar && !sentences.length;
  byId("split").replaceChildren(...(bar ? [bar] : []));
  byId("time").textContent = sentences.join(" ");
}

/** What the attempt has written that failed last, of the replica that failed first: the others may be its victims. */
function drawEvidence(model) {
  const failed = (replica) => replica.state !== "parked" && replica.attempts.at(-1)?.failure_class && replica.attempts.at(-1).last_lines?.length;
  const end = (replica) => replica.attempts.at(-1).ended_at ?? "~";
  const [replica] = model.replicas.filter(failed).sort((a, b) => (end(a) < end(b) ? -1 : Number(end(a) > end(b))));
  byId("evidence").replaceChildren(...(replica ? [lastLines(model, replica, replica.attempts.at(-1), model.data.state === "failed")] : []));
}

/** A document that is rendered when it is opened: its beginning to read, all of it to save. */
function drawDocument(id, name, value) {
  const details = byId(id);
  details.replaceChildren(details.firstElementChild);
  const write = () => {
    if (!details.open || details.children.length > 1) return;
    const text = JSON.stringify(value(), null, 2);
    const long = text.length > SHOWN_CHARACTERS;
    const save = () => {
      const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
      link.click();
      URL.revokeObjectURL(link.href);
    };
    details.append(el("button", { type: "button", onclick: save }, `Save ${name}`),
      el("pre", { tabindex: 0 }, long ? `${text.slice(0, SHOWN_CHARACTERS)}\n… (save the file to see the rest)` : text));
  };
  details.ontoggle = write;
  write();
}

function drawDocuments(model) {
  drawDocument("plan", `${model.data.run}-plan.json`, () => model.data.plan);
  drawDocument("raw", `${model.data.run}.json`, () => model.data);
}

async function begin() {
  let model = new Model(await unpacked(byId("data").textContent));
  drawHead(model);
  const sweep = new SweepTable(model);
  const seats = new Seats(model);
  await soon();
  const timeline = new Timeline(model, (ranks) => metrics?.select(ranks));
  let metrics = null;
  timeline.draw();
  await soon();
  metrics = new Metrics(model);
  await soon();
  const rounds = new RoundBars(model);
  const rates = new Rates(model);
  const updates = new Updates(model);
  drawDocuments(model);
  document.documentElement.dataset.ready = "true";
  if (document.documentElement.dataset.mode === "live") follow((data) => {
    model = new Model(data);
    drawHead(model);
    sweep.update(model);
    seats.update(model);
    timeline.update(model);
    metrics.update(model);
    rounds.update(model);
    rates.update(model);
    updates.update(model);
    drawDocuments(model);
  });
}

/** Polls until the run has ended. With the ETag of the data shown, the server answers 304 while nothing is newer. */
async function follow(show) {
  let tag = "";
  for (;;) {
    await new Promise((done) => { setTimeout(done, POLL_MILLISECONDS); });
    try {
      const answer = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 304) continue;
      if (!answer.ok) {
        tag = "";  // so that the next successful poll gets the data again
        say(await answer.text());
        continue;
      }
      const data = await answer.json();
      show(data);
      say(data.verdict);
      tag = answer.headers.get("ETag") ?? "";
      if (data.ended_at) return;
    } catch {
      tag = "";
      say("The server of this page does not answer; this is the latest data from it.");
    }
  }
}

/** Announces news to screen readers, unless they were announced last. */
function say(news) {
  if (byId("news").textContent !== news) byId("news").textContent = news;
}

begin();
