"""Stepping through a replica's workflow: the real definition and the real decisions, on a clock that does not wait.

It counts state transitions, which are billed, and history events, which are limited to 25,000 per execution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from jsonata import Jsonata

from bench.launches.definition import replica_machine
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision
from muster.contract.spec.spec import Spec
from muster.contract.timestamps import Timestamp
from muster.control.aws.task_tokens import caught_error, workflow_state
from muster.control.rerun_decision import Facts, judge
from muster.control.runtime import clock

# Step Functions: Entered and Exited for each state; for a task that waits for its token also Scheduled, Started,
# Submitted, and Succeeded or TimedOut; ExecutionStarted and ExecutionSucceeded for the whole.
_EVENTS = {"Task": 6, "Choice": 2, "Wait": 2, "Pass": 2, "Succeed": 2}
_OF_EXECUTION = 2
_START = 1  # transitions: the one into the first state

TIMEOUT = "States.Timeout"


class TaskEnd(NamedTuple):
    """The outcome of a task: the error that the definition catches, if any, and the state with which it continues."""

    error: str | None
    state: dict[str, Any]


@dataclass
class Steps:
    """The counts of one execution of the child workflow."""

    transitions: int = _START
    events: int = _OF_EXECUTION
    tasks: int = 0


def step_through(ends: Iterator[TaskEnd], rearm_seconds: int) -> Steps:
    """Step the definition from its start to its end; `ends` gives the outcome of each task."""
    machine, steps = replica_machine(rearm_seconds), Steps()
    name: str = machine["StartAt"]
    state_input: dict[str, Any] = {}
    while True:
        state = machine["States"][name]
        steps.transitions += 1
        steps.events += _EVENTS[state["Type"]]
        if state["Type"] == "Succeed":
            return steps
        if state["Type"] == "Choice":
            name = _chosen(state, state_input)
            continue
        if state["Type"] == "Task":
            steps.tasks += 1
            end = next(ends)
            state_input = {**state_input, **end.state}
            if end.error is not None:
                name = next(catch["Next"] for catch in state["Catch"] if end.error in catch["ErrorEquals"])
                continue
            if state.get("End"):
                return steps
        name = state["Next"]


def _chosen(state: dict[str, Any], state_input: dict[str, Any]) -> str:
    frame = Jsonata("null").create_frame()
    frame.bind("states", {"input": state_input})
    for choice in state["Choices"]:
        condition = choice["Condition"].removeprefix("{% ").removesuffix(" %}")
        if Jsonata(condition).evaluate(None, frame):
            return str(choice["Next"])
    return str(state["Default"])


def life(spec: Spec, failures: list[FailureClass], job_seconds: float, rearm_seconds: int) -> Iterator[TaskEnd]:
    """The ends of the tasks of a replica whose attempts fail like `failures`, and whose last one succeeds.

    Raises:
        ValueError: the spec's budgets do not allow as many reruns.
    """
    attempts: tuple[Attempt, ...] = ()
    for number, failure in enumerate([*failures, None], start=1):
        ended = Attempt(attempt=number, job=f"job-a{number}", launched_at=Timestamp("t"), failure_class=failure)
        attempts = (*attempts, ended)
        for _ in range(int(job_seconds // rearm_seconds)):
            yield TaskEnd(TIMEOUT, {})
        decision = judge(0, attempts, Facts(spec, stopping=False, ceiling=None, now=clock.now()))
        if decision.lost:
            raise ValueError(decision.reason)
        left = decision.delay_seconds
        while True:
            state = workflow_state("run", 0, _due_in(decision, left))
            yield TaskEnd(caught_error(state), state)
            left -= int(state["delay_seconds"])
            if failure is None or left <= 0:
                break


def _due_in(decision: Decision, seconds: int) -> Decision:
    """The decision as it stands when so many seconds of its wait are left."""
    return decision.model_copy(update={"delay_seconds": seconds, "decided_at": clock.now()})
