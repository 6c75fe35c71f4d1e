from __future__ import annotations

import pytest

from muster.control.reporting.notifications import SUBJECT_MAX, notification


@pytest.mark.parametrize(
    ("detail_type", "detail", "subject", "lines"),
    [
        (
            "Run Failed",
            {"run": "one", "reason": "out of memory", "replicas": 4, "reruns": 2, "at": "t", "result": "s3://b/r"},
            "Muster: one failed",
            ["Reason: out of memory", "Replicas: 4", "Reruns of all replicas: 2", "Time: t"],
        ),
        (
            "Run Rerun",
            {"run": "one", "continued_by": "one-x2"},
            "Muster: one gets a continuation",
            ["Continued by: one-x2"],
        ),
        (
            "Run Refused",
            {"request": "s3://bucket/inbox/a.yaml", "problems": ["replicas: 0", "image: none"]},
            "Muster: a run was refused",
            ["Requested by: s3://bucket/inbox/a.yaml", "- replicas: 0", "- image: none"],
        ),
    ],
)
def test_a_message_says_what_happened_and_what_to_do(
    detail_type: str, detail: dict[str, object], subject: str, lines: list[str]
) -> None:
    message = notification(detail_type, detail)
    assert message.subject == subject
    assert message.text.startswith(subject.removeprefix("Muster: ") + ".\n")
    assert [line for line in lines if line not in message.text.splitlines()] == []


@pytest.mark.parametrize(
    "detail_type", ["Quorum Lost", "Run Succeeded", "Run Failed", "Run Stopped", "Run Rerun", "Run Refused"]
)
def test_a_subject_is_short_ascii_on_one_line(detail_type: str) -> None:
    subject = notification(detail_type, {"run": "r" * 200}).subject
    assert len(subject) <= SUBJECT_MAX
    assert subject.isascii()
    assert "\n" not in subject


def test_an_event_that_calls_for_no_action_has_no_message() -> None:
    with pytest.raises(KeyError):
        notification("Replica Launched", {"run": "one"})
