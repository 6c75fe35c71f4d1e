"""What the reason of a run says of replicas that finished early, and of trainers that did not return."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.run.commit import Commit, Member
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Verdict
from muster.control.early_finish import with_early_finish_note, with_goal_note

EXITED = "its trainer called sys.exit(0)"


def replica(rank: int, **fields: Any) -> ReplicaResult:
    return ReplicaResult(rank=rank, outcome=ReplicaOutcome.SUCCEEDED, **fields)


def last(round_: int, expected: int | None) -> Commit:
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics={})
    return Commit(
        run="r", round=round_, committed_at="", count=1, members=(member,), epochs=(1,), expected_rounds=expected
    )


def test_a_trainer_that_called_sys_exit_is_named() -> None:
    assert with_early_finish_note("all", [replica(0), replica(1)], 3) == "all"
    exited = [replica(0, ended=EXITED), replica(1)]
    assert with_early_finish_note("all", exited, 3) == f"all; replica 0 ended: {EXITED}"
    early = f"finished in round 2: {EXITED}"
    both = [replica(0, ended=EXITED, finished_early=early), *(replica(rank, ended=EXITED) for rank in range(1, 6))]
    assert with_early_finish_note("all", both, 3).split("; ") == [
        "all",
        "the last round was 3",
        f"replica 0 {early}",
        *(f"replica {rank} ended: {EXITED}" for rank in (1, 2, 3)),
        "and 2 more ended so",
    ]


@pytest.mark.parametrize(
    ("round_", "expected", "note"),
    [
        (3, 6, "; the training ended with round 3 of the 6 that its trainers expect"),
        (6, 6, ""),
        (7, 6, ""),
        (3, None, ""),
    ],
)
def test_a_success_with_fewer_rounds_than_expected_says_so(round_: int, expected: int | None, note: str) -> None:
    assert with_goal_note("all", Verdict.SUCCEEDED, last(round_, expected)) == f"all{note}"
    assert with_goal_note("cancelled", Verdict.STOPPED, last(round_, expected)) == "cancelled"
    assert with_goal_note("all", Verdict.SUCCEEDED, None) == "all"
