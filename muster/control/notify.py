"""The messages to people: a subject and a text for each event that may need an action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

SUBJECT_MAX = 100  # SNS: a subject has at most 100 ASCII characters on one line


class Notification(NamedTuple):
    """A message to people."""

    subject: str
    text: str


_SUBJECTS = {
    "Quorum Lost": "{run} is being stopped",
    "Run Succeeded": "{run} succeeded",
    "Run Failed": "{run} failed",
    "Run Stopped": "{run} was stopped",
    "Run Continued": "{run} gets a continuation",
    "Run Refused": "a run was refused",
}
# The most useful first; an event has some of them.
_FACTS = {
    "reason": "Reason: {}",
    "continued_by": "Continued by: {}",
    "request": "Requested by: {}",
    "replicas": "Replicas: {}",
    "reruns": "Reruns of all replicas: {}",
    "at": "Time: {}",
    "result": "Result: {}",
}
_ADVICE = {
    "Quorum Lost": "Too few replicas can still succeed. The jobs of the run are being stopped; its result follows.",
    "Run Failed": "`muster result {run}` shows every attempt. Saved checkpoints stay in the bucket.",
    "Run Stopped": "Its jobs are stopped. Saved checkpoints stay in the bucket.",
    "Run Continued": "The run failed. Its continuation policy continues it from the last committed round.",
    "Run Refused": "Nothing was created. Correct these problems and start the run again:",
}


def notification(detail_type: str, detail: Mapping[str, JsonValue]) -> Notification:
    """The message for an event of Muster's bus.

    Raises:
        KeyError: there is no message for such events.
    """
    subject = f"Muster: {_SUBJECTS[detail_type].format(run=detail.get('run'))}"[:SUBJECT_MAX]
    facts = [words.format(detail[name]) for name, words in _FACTS.items() if name in detail]
    advice = _ADVICE.get(detail_type, "").format(run=detail.get("run"))
    found = detail.get("problems")
    problems = [f"- {problem}" for problem in found] if isinstance(found, list) else []
    return Notification(
        subject, "\n".join([f"{subject.removeprefix('Muster: ')}.", "", *facts, "", advice, *problems]).strip()
    )
