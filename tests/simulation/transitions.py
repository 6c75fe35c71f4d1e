"""What an exploration must reach: a schedule space in which one of these never happens proves nothing about it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.source_patch import ROOT

_NUMBERS = re.compile(r"\d+")


def _states(flow: Mapping[str, Any]) -> Iterator[str]:
    """The names of all states, those of the children included."""
    for name, state in flow["States"].items():
        yield name
        if "ItemProcessor" in state:
            yield from _states(state["ItemProcessor"])


TRANSITIONS = (
    "a replica of a sweep is lost, and the others train on",
    # The states of the workflow, and the errors that they catch.
    *(f"state: {name}" for name in _states(json.loads((ROOT / "statemachine" / "run.asl.json").read_text()))),
    "re-armed: Launch the job and wait for its end",
    "re-armed: Wait in the run queue",
    # What the functions answer.
    *(
        f"attempt: {launch}"
        for launch in (
            "created",
            "adopted",
            "concluded",
            "refused: the run is stopping",
            "too early for the rerun",
            "superseded",
            "failed",
            "held: its seat is parked",
        )
    ),
    *(f"scale: {answer}" for answer in ("scaled", "as many as were wanted", "refused")),
    "a seat without capacity is parked",
    "a seat is opened again",
    "the job of a closed seat is stopped",
    "a continuation keeps its seats",
    "admit: True",
    "admit: False",
    "react: decided",
    "react: noted: InProgress/Training",
    "react: noted: InProgress/Training, stopped: the run is stopping",
    "react: announced again: the decision was already recorded",
    "react: dropped: attempt N is not the current one",
    "settle: succeeded",
    "settle: failed",
    "settle: stopped",
    "stop: asked",
    "stop: verified",
    "given up: fail",
    "given up: stop",
    "start: started",
    "start: started before",
    "timer: the run has ended or is being stopped",
    "timer: enough replicas are training",
    "timer: the run is stopped",
    "sweep: nothing",
    "sweep: settled",
    "sweep: stopped an orphan",
    # How runs end.
    *(
        f"end: {status}, {verdict}"
        for status, verdict in (
            ("SUCCEEDED", "succeeded"),
            ("FAILED", "failed"),
            ("ABORTED", "stopped"),
        )
    ),
    "fence: execution-stopped",
    "fence: execution-failed",
    "fence: quorum-lost",
    "fence: launch-gate",
    "fence: deadline",
    "a replica is lost, and the run succeeds",
    "a replica is rerun, and succeeds",
    "the cost ceiling prevents a rerun",
    "a continuation",
    "a replica that hung is rerun",
    "a replica that hung stops its run",
    # What befalls them.
    *(f"crash: {name}" for name in ("plan", "admit", "attempt", "react", "settle", "stop", "sweep", "timer", "scale")),
    *(f"time-out: {name}" for name in ("plan", "admit", "attempt", "react", "settle", "stop")),
    "an asynchronous retry succeeds",
    "a dead letter",
    "an invocation's answer is lost",
    "an event is lost",
    "an event comes twice",
    "an event comes late",
    "a storm",
    "a conflict of S3",
    "a late effect",
    "two jobs of a replica",
    "a job is created after its answer was lost",
    "a job is created after its run's end",
    "a run is cancelled",
    "a user stops a job",
    # On a cluster.
    "look: decided",
    "look: noted: InProgress/Training",
    "react: noted: InProgress/Restarting",
    "look: noted: InProgress/WaitingForQuota",
    "the operator restarts a job",
    "a job is preempted and resumes",
    "a person deletes a job",
    "a notice is forged",
)


def of_answer(function: str, answer: Any) -> str | None:
    """The transition that a function's answer means."""
    match function:
        case "attempt":
            return f"attempt: {answer['launch']}"
        case "admit":
            return f"admit: {answer['admitted']}"
        case "react" | "look":
            return f"{function}: {_NUMBERS.sub('N', answer['reaction'])}"
        case "settle":
            return f"settle: {answer['verdict']}"
        case "stop":
            return f"stop: {answer['stop']}" if "stop" in answer else f"given up: {answer['next']}"
        case "start":
            return f"start: {', '.join(answer['outcomes'])}"
        case "scale":
            return f"scale: {answer['scale']}"
        case "timer":
            return f"timer: {answer['timer']}"
        case "sweep":
            done = "stopped an orphan" if answer["stopped"] else "settled" if answer["settled"] else "nothing"
            return f"sweep: {done}"
    return None
