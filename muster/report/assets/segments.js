"use strict";
// The history of a replica as segments of time: what SageMaker's statuses say of its jobs, and its contributions of the
// time in them.

const JOB_PHASES = {
  capacity: ["Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack", "WaitingForQuota", "Interrupted", "Restarting"],
  starting: ["Downloading", "DownloadingTrainingImage"],
  saving: ["Uploading", "Stopping"],
};
const PHASE_OF = new Map(Object.entries(JOB_PHASES).flatMap(([phase, names]) => names.map((name) => [name, phase])));
const WORDS = new Map([["WaitingForQuota", "waits for quota"], ["Restarting", "restarts"]]);
const ENDED = new Set(["Completed", "Failed", "Stopped"]);
// The order of a round: the mean of the one before is loaded, the replica trains, gives, and waits for the others.
const ORDER = ["exchanging", "loading", "training", "saving", "waiting"];
// So much of a round may be missing: its parts are stretched. Commits are dated by the store, in whole seconds.
const SLACK = 0.08;
const STORE_SECONDS = 1;
// An attempt whose request was refused never had a job (muster/contract/run/attempt.py).
const hasJob = (attempt) => attempt.secondary !== "NotCreated";

/** Whether an attempt ended because its seat was not wanted any more, which is no failure. */
const hasLeft = (model, attempt) => Boolean(model.data.seats) && attempt.failure_class === "stopped-by-muster";

/** The history of a replica, in order: `{from, to, phase, what}` in seconds from the run's start. */
function segments(model, replica) {
  const found = [];
  let free = 0; // since when the replica has no job
  let why = "for its launch";
  const parked = model.parkedTimes(replica.rank);
  const add = (from, to, phase, what) => { if (to - from > 0.0005) found.push({ from, to, phase, what }); };
  // A seat that is not wanted waits for nothing.
  const wait = (to) => {
    if (free === null) return;
    let at = free;
    for (const [begin, end] of parked) {
      if (end <= at || begin >= to) continue;
      add(at, begin, "capacity", `waits ${why}`);
      add(Math.max(at, begin), Math.min(to, end), "parked", "parked: not wanted");
      [at, why] = [Math.min(to, end), "for its launch"];
    }
    add(at, to, "capacity", `waits ${why}`);
  };
  for (const attempt of replica.attempts) {
    if (!attempt.launched_at) {
      // Refused before there was a job, at an unknown time.
      why = `for ${attempt.failure_class ?? "capacity or quota"}`;
      continue;
    }
    const from = model.since(attempt.launched_at);
    const to = Math.max(from, attempt.ended_at ? model.since(attempt.ended_at) : model.span);
    wait(from);
    if (hasJob(attempt)) jobSegments(model, replica, attempt, [from, to], found);
    else found.push({ from, to, phase: "capacity", what: `waits for ${attempt.failure_class ?? "a job"}` });
    free = null;
    if (attempt.ended_at && attempt.status !== "Completed") {
      const cause = attempt.failure_class ?? (attempt.status || "unknown");
      if (!hasLeft(model, attempt)) found.push({ from: to, to, phase: "broken", what: `attempt ${attempt.attempt} ended: ${cause}` });
      [free, why] = [to, hasJob(attempt) ? `for a rerun after ${cause}` : `for ${cause}`];
    }
  }
  if (!model.data.ended_at) wait(model.span);
  return found;
}

function jobSegments(model, replica, attempt, [from, to], found) {
  const steps = (attempt.history ?? []).filter((step) => !ENDED.has(step.secondary));
  let at = from;
  let name = steps.length ? "Starting" : attempt.ended_at ? "Training" : attempt.secondary || "Starting";
  let message = "";
  const push = (end) => {
    if (end <= at) return;
    const phase = PHASE_OF.get(name);
    const words = WORDS.get(name) ?? name;
    if (phase) found.push({ from: at, to: end, phase, what: message ? `${words}: ${message}` : words });
    else roundSegments(model, replica, [at, end], found);
  };
  for (const step of steps) {
    const next = Math.min(to, Math.max(at, model.since(step.at)));
    if (step.secondary !== name) {
      push(next);
      [at, name] = [next, step.secondary];
    }
    message = step.message ?? "";
  }
  push(to);
  if (attempt.cluster) clusterMarks(model, attempt, [from, to], found);
}

/** When the operator restarted a job on a cluster, and when it changed the number of its instances. */
function clusterMarks(model, attempt, [from, to], found) {
  let instances = null;
  for (const step of attempt.history ?? []) {
    const at = Math.min(to, Math.max(from, model.since(step.at)));
    if (step.secondary === "Restarting") found.push({ from: at, to: at, phase: "restarted", what: `restarted by the operator${step.message ? `: ${step.message}` : ""}` });
    if (step.instances === null || step.instances === undefined || step.instances === instances) continue;
    if (instances !== null || step.instances > 1) found.push({ from: at, to: at, phase: "scaled", label: `×${step.instances}`, what: `trains on ${step.instances} instance${step.instances === 1 ? "" : "s"}` });
    instances = step.instances;
  }
}

/** What is no span of time but a point in it. */
const MARKS = new Set(["broken", "restarted", "scaled"]);

/** The time in a job, divided by what the contributions of its replica say. */
function roundSegments(model, replica, [from, to], found) {
  const { numbers, at, waited_for: waitedFor, times } = model.rounds;
  const rest = (begin, end, what) => { if (end - begin > 0.0005) found.push({ from: begin, to: end, phase: times || !numbers.length ? "other" : "training", what }); };
  let done = from;
  for (let bucket = times ? firstBucket(model, from) : model.buckets; bucket < model.buckets; bucket += 1) {
    const first = bucket * model.bucket;
    const last = Math.min(numbers.length, first + model.bucket) - 1;
    const [begin, end] = [Math.max(done, model.begins[first]), Math.min(to, at[last])];
    if (model.begins[first] >= to) break;
    const length = at[last] - model.begins[first];
    const shares = model.sharesOf(replica.rank, bucket);
    let seconds = ORDER.map((name) => (shares[ACTIVITIES.indexOf(name)] / FULL) * length);
    const sum = seconds.reduce((before, one) => before + one, 0);
    if (!sum || end <= begin || at[last] > to + 0.05 * length) continue;
    const room = end - begin;
    const slack = Math.max(SLACK * length, done === from ? 0 : STORE_SECONDS);
    const scale = sum > room || room - sum < slack ? room / sum : 1;
    seconds = seconds.map((one) => one * scale);
    let here = end - sum * scale;
    rest(done, here, done === from ? "starts its program" : "in no round");
    const round = first === last ? `round ${numbers[first]}` : `rounds ${numbers[first]} to ${numbers[last]}, averaged`;
    ORDER.forEach((phase, index) => {
      if (!seconds[index]) return;
      const whom = phase === "waiting" && first === last && waitedFor[first] !== null && waitedFor[first] !== undefined ? ` for replica ${waitedFor[first]}` : "";
      found.push({ from: here, to: here + seconds[index], phase, what: `${round}: ${whom ? `waiting${whom}` : PHASES[phase].words}` });
      here += seconds[index];
    });
    done = end;
  }
  rest(done, to, done === from ? "in no round" : "after its last round");
}

/** The first bucket of rounds that ends after `seconds`. */
function firstBucket(model, seconds) {
  const { at } = model.rounds;
  let [low, high] = [0, model.buckets];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[Math.min(at.length, (middle + 1) * model.bucket) - 1] <= seconds) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The seconds of each phase of a replica. */
function totals(parts) {
  const found = {};
  for (const part of parts) if (!MARKS.has(part.phase) && part.phase !== "parked") found[part.phase] = (found[part.phase] ?? 0) + part.to - part.from;
  return found;
}

/** A bar in words, for screen readers. */
function spoken(replica, parts) {
  const found = totals(parts);
  const ends = parts.filter((part) => MARKS.has(part.phase)).map((part) => part.what);
  const words = Object.keys(PHASES).filter((name) => found[name]).map((name) => `${PHASES[name].words} ${duration(found[name])}`);
  return `Replica ${replica.rank}, ${replica.state}: ${[...words, ...ends].join(", ") || "not launched"}`;
}
