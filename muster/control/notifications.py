"""The messages that people get: a subject and a text for each event that may call for an action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

SUBJECT_MAX = 100  # SNS: a subject has at most 100 ASCII characters on one line


class Notification(NamedTuple):
    """A message to people."""

    subject: str
    text: str


_SUBJECTS = {
    "Quorum Lost": "{run} is being stopped",
    "Run Succeeded": "{run} has succeeded",
    "Run Failed": "{run} has failed",
    "Run Stopped": "{run} was stopped",
    "Run Rerun": "{run} continues",
    "Run Refused": "a run was refused",
}
# In the order in which they are of use; an event brings some of them.
_FACTS = {
    "reason": "Why: {}",
    "continued_by": "Continued by: {}",
    "request": "Requested by: {}",
    "replicas": "Replicas: {}",
    "reruns": "Reruns, all replicas together: {}",
    "at": "When: {}",
    "result": "The whole result: {}",
}
_ADVICE = {
    "Quorum Lost": "Too few replicas can still succeed. Its jobs are being stopped; a result follows.",
    "Run Failed": "`muster result {run}` shows every attempt. Checkpoints that were saved stay in the bucket.",
    "Run Stopped": "Its jobs are stopped. Checkpoints that were saved stay in the bucket.",
    "Run Rerun": "It has failed; its rerun policy continues it from the last committed round.",
    "Run Refused": "Nothing was created. Correct this and ask again:",
}


def notification(detail_type: str, detail: Mapping[str, Any]) -> Notification:
    """The message for an event of Muster's bus.

    Raises:
        KeyError: there is no message for such events.
    """
    subject = f"Muster: {_SUBJECTS[detail_type].format(run=detail.get('run'))}"[:SUBJECT_MAX]
    facts = [words.format(detail[name]) for name, words in _FACTS.items() if name in detail]
    advice = _ADVICE.get(detail_type, "").format(run=detail.get("run"))
    problems = [f"- {problem}" for problem in detail.get("problems", ())]
    return Notification(
        subject, "\n".join([f"{subject.removeprefix('Muster: ')}.", "", *facts, "", advice, *problems]).strip()
    )
