"""What the control plane of a run costs, by published prices (us-east-1) and counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bench.launches.steps import life, step_through
from bench.table import Row
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.spec.spec_reader import parse_spec
from muster.infra.settings.stack_settings import RunsTable

# Published on-demand prices, dollars.
TRANSITION = 0.025 / 1_000
INVOCATION = 0.20 / 1_000_000
GB_SECOND = 0.0000133334  # Lambda on arm64
PUT = 0.005 / 1_000  # and LIST
GET = 0.0004 / 1_000
EVENT = 1.00 / 1_000_000  # put on a bus of one's own; the events of AWS services are free
LOG_GB = 0.50  # CloudWatch Logs, taken in

# Assumed: what an invocation lasts (AWS bills cold starts, too), its memory, and what it logs.
_SECONDS, _GB, _LOGGED = 0.3, 1.0, 2_000
_REPLICAS = 1_000
# Per run: plan, settle, and the function that sends the notification of its end.
_OF_RUN_INVOCATIONS = 3
_OF_RUN_TRANSITIONS = 7  # Plan, Choice, Map, Settle, Choice, Succeed, and the start
_COUNTED = "counted for 1,000 replicas over the AWS in memory, the run's own included"
_EVENTS_PER_JOB = 2  # that reach react: Training, and the job's end


@dataclass(frozen=True)
class Counts:
    """Requests per replica: PUT and LIST, GET, PutEvents."""

    puts: float
    gets: float
    events: float


def bill_rows(clean: Counts, rerun: Counts) -> list[Row]:
    """Counts per replica, and dollars for 1,000 replicas with one rerun each."""
    spec, rearm = parse_spec({"replicas": 1, "trainer": "m:f"}), RunsTable().rearm_seconds
    once = step_through(life(spec, [], 3_600, rearm), rearm)
    twice = step_through(life(spec, [FailureClass.INFRASTRUCTURE], 3_600, rearm), rearm)
    rows = []
    for what, steps, jobs, counts in (("without a rerun", once, 1, clean), ("with one rerun", twice, 2, rerun)):
        invocations = steps.tasks + jobs * _EVENTS_PER_JOB
        aim = "<= 12" if jobs == 2 else None
        rows += [
            Row(f"state transitions of a replica {what}", steps.transitions, "transitions", aim, note="stepped"),
            Row(f"function calls of a replica {what}", invocations, "calls", note="attempt, and react twice a job"),
            Row(f"S3 PUT and LIST of a replica {what}", counts.puts, "requests", note=_COUNTED),
            Row(f"S3 GET of a replica {what}", counts.gets, "requests", note=_COUNTED),
            Row(f"PutEvents of a replica {what}", counts.events, "requests", note=_COUNTED),
        ]
    parts = _dollars(twice.transitions, twice.tasks + 2 * _EVENTS_PER_JOB, rerun)
    note = " + ".join(f"{name} ${usd:.3f}" for name, usd in parts.items())
    return [
        *rows,
        Row("control plane of 1,000 replicas with one rerun each", sum(parts.values()), "$", "<= 0.2", note=note),
    ]


def _dollars(transitions: int, invocations: int, counts: Counts) -> dict[str, float]:
    calls = _REPLICAS * invocations + _OF_RUN_INVOCATIONS
    return {
        "transitions": (_REPLICAS * transitions + _OF_RUN_TRANSITIONS) * TRANSITION,
        "functions": calls * (INVOCATION + _SECONDS * _GB * GB_SECOND),
        "PUT and LIST": _REPLICAS * counts.puts * PUT,
        "GET": _REPLICAS * counts.gets * GET,
        "events": _REPLICAS * counts.events * EVENT,
        "logs": calls * _LOGGED / 1e9 * LOG_GB,
    }
