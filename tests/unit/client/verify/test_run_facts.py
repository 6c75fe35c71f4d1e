"""What is read of the run of a verification: its archives and its roll-up."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from muster.client.verify import run_gathering
from muster.client.verify.run_checks import judge_run
from muster.client.verify.run_facts import without_end
from muster.client.verify.run_gathering import ArchiveError, archive_members
from muster.contract.run.attempt import Attempt
from muster.contract.run.roll_up import ReplicaEntry
from muster.contract.timestamps import Timestamp
from tests.support.verification import RESULT, RUN

ENDED = Timestamp("2026-11-21T09:55:00.000Z")


def entries(*, ended: bool, last: int = 2) -> dict[int, ReplicaEntry]:
    """A roll-up of both ranks; the last attempt of rank 1 is `last`, and its end is there or not."""
    at = {0: Attempt(attempt=1, job="muster-v-r0-a1", ended_at=ENDED)}
    at[1] = Attempt(attempt=last, job=f"muster-v-r1-a{last}", ended_at=ENDED if ended else None)
    return {rank: ReplicaEntry(rank=rank, revision=1, attempts=(attempt,)) for rank, attempt in at.items()}


def test_a_roll_up_is_complete_when_it_has_the_end_of_every_last_attempt() -> None:
    assert without_end(RESULT, entries(ended=True)) == ()
    assert without_end(RESULT, entries(ended=False)) == (1,)
    assert without_end(RESULT, entries(ended=True, last=1)) == (1,)
    assert without_end(RESULT, {}) == (0, 1)


def tar(name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return packed.getvalue()


def test_the_members_of_an_archive_are_read() -> None:
    assert archive_members(gzip.compress(tar("manifest.json"))) == ("manifest.json",)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        tar("manifest.json"),
        gzip.compress(b"no tar"),
        gzip.compress(tar("x"))[:-9],
        b"\x1f\x8b\x08" + b"x" * 40,
    ],
    ids=["empty", "text", "not-compressed", "no-tar", "cut-off", "damaged"],
)
def test_what_is_no_archive_is_an_error_of_its_own(body: bytes) -> None:
    with pytest.raises(ArchiveError):
        archive_members(body)


def test_an_archive_that_unpacks_to_far_more_than_it_has_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    monkeypatch.setattr(run_gathering, "_UNPACKED_BYTES_MAX", 1_000_000)
    with pytest.raises(ArchiveError, match="unpacks to more than 1,000,000 bytes"):
        archive_members(bomb)


def test_the_run_names_what_sagemaker_must_manage_without() -> None:
    [run, *_] = judge_run(RUN)
    assert "session tags" in run.assumes
    assert "listing of the bucket without a prefix" in run.assumes
    assert "403 for a missing key" in run.assumes
