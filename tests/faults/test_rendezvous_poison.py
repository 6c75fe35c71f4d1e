"""Contributions that must not reach the parameters: their sender is excluded from the round, with a reason."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.replica.codecs.base import Dither, Payload
from muster.replica.codecs.plain import Fp32
from muster.replica.replica_errors import DivergedError, RendezvousError
from muster.replica.rounds import agreement
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, Encoding, Floats, decode_header, encode
from muster.replica.wire.headers import ContributionHeader
from tests.support.peers import SHARDED, Faults, Run, all_ended, gradient_of, none_is_taken_for_dead
from tests.support.waiting import wait_until

POISONED = rendezvous_keys.contribution(2, 1, 1)
# The last third is reduced by the sender, from the sound values that it has in memory.
THIRD = HEADER_BYTES + SHARDED * 4 // 3


def flipped(position: int) -> Callable[[bytes], bytes]:
    return lambda body: body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :]


class Poisoning(Fp32):
    """Writes one value that an honest encoder refuses."""

    kernel_format = None

    def __init__(self, value: float) -> None:
        self._value = value

    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:
        super().encode(values, payload, dither)
        payload.view(self.dtype)[0, 0] = self._value


def with_values(value: float) -> Callable[[bytes], bytes]:
    """Valid except for one value."""

    def rewrite(body: bytes) -> bytes:
        header = decode_header(POISONED, memoryview(body), ContributionHeader)
        return bytes(encode(POISONED, gradient_of(1, 2, header.count), lambda _: header, Encoding(Poisoning(value))))

    return rewrite


def with_header(**update: object) -> Callable[[bytes], bytes]:
    def rewrite(body: bytes) -> bytes:
        header = decode_header(POISONED, memoryview(body), ContributionHeader)
        forged = header.model_copy(update=update).to_json()
        prefix = struct.pack("<8sHHI", b"\x93MUSTER\n", 1, len(forged), zlib.crc32(forged))
        return (prefix + forged).ljust(HEADER_BYTES, b"\0") + body[HEADER_BYTES:]

    return rewrite


def with_weight(weight: float) -> Callable[[bytes], bytes]:
    def rewrite(body: bytes) -> bytes:
        header = decode_header(POISONED, memoryview(body), ContributionHeader)
        return with_header(member=header.member.model_copy(update={"weight": weight}))(body)

    return rewrite


POISONS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "it has 0 bytes, a header takes 4096"),
    "garbage": (lambda body: b"x" * len(body), "does not start with Muster's magic"),
    "truncated": (lambda body: body[:-1], "parameters need"),
    "too long": (lambda body: body + b"\0" * 100, "parameters need"),
    "damaged header": (flipped(30), "the header's checksum does not match"),
    "other version": (flipped(8), "format version is 0"),
    "damaged first block": (flipped(HEADER_BYTES + 9), "the checksum of block 0 does not match"),
    "damaged later block": (flipped(THIRD + 20_000), "the checksum of block"),
    "NaN": (with_values(float("nan")), "NaN, infinity"),
    "infinity": (with_values(float("-inf")), "NaN, infinity"),
    "absurd value": (with_values(3e38), "values beyond 1e+30"),
    "other model": (with_header(count=7), "it has 7 parameters, but the run has"),
    "other round": (with_header(round=1), "another run, round or rank"),
    "other codec": (with_header(codec="int4/1"), "encoded as int4/1, but the run uses fp32/1"),
    "no weight": (with_weight(0.0), "weight"),
    "absurd weight": (with_weight(1e300), "weight"),
}


@pytest.fixture(autouse=True)
def _all_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """All live here. A sender that took a slow member's shard over would reduce its own values, sound in its memory."""
    none_is_taken_for_dead(monkeypatch)


@pytest.mark.parametrize(("poison", "reason"), POISONS.values(), ids=POISONS)
def test_a_poisoned_contribution_excludes_its_sender_from_the_round(
    tmp_path: Path, poison: Callable[[bytes], bytes], reason: str
) -> None:
    run = Run(tmp_path, min_participants=2, count=SHARDED, rounds=3)

    def poisoned(key: str, body: bytes) -> bytes:
        return poison(body) if key == POISONED else body

    def after_the_poison(round_: int) -> None:
        if round_ == 2:
            wait_until("the poisoned object", (run.root / POISONED).exists)

    def by_another(key: str) -> None:
        # The sender judges its own contribution as sound: another member must commit the round.
        if key == rendezvous_keys.commit(2):
            wait_until("the object", (run.root / key).exists)

    sender = run.start(1, faults=Faults(before_create=by_another, rewrite=poisoned))
    others = [run.start(rank, before_step=after_the_poison) for rank in (0, 2)]
    with all_ended([sender, *others]):
        finals = {peer.parameters() for peer in (sender, *others)}
    assert [_members(run, round_) for round_ in (1, 2, 3)] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert finals == {run.replayed_by_hand(lambda round_: _members(run, round_))}
    excluded = run.commit(2, _last_revision(run, 2)).excluded
    # A client, which reads the commits alone, sees it too.
    assert (run.commit(3).excluded_before, run.commit(3).excluded_total) == (excluded, 1)
    assert [item.rank for item in excluded] == [1]
    assert reason in excluded[0].reason


def test_the_others_wait_for_a_replica_whose_contribution_is_damaged_and_is_contributed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "WAITING_LOGGED_SECONDS", 0.3)
    run = Run(tmp_path, rounds=3)
    damaging = Faults(rewrite=lambda key, body: flipped(30)(body) if key == POISONED else body)
    sender = run.start(1, faults=damaging)

    def after_its_end(round_: int) -> None:
        # The sender, which judges its own contribution as sound, would commit the round with three.
        if round_ == 2:
            sender.join()

    others = [run.start(0), run.start(2, before_step=after_its_end)]
    sender.join()
    assert isinstance(sender.error, RendezvousError)
    assert "to round 2 has been damaged: the header's checksum does not match" in str(sender.error)
    peers = [run.start(1, attempt=2), *others]
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    assert [_members(run, round_) for round_ in (1, 2, 3)] == [[0, 1, 2]] * 3


def test_more_poisoned_contributions_than_one_amendment_names_are_all_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=13, min_participants=1, rounds=1)
    faults = Faults(rewrite=lambda key, body: flipped(HEADER_BYTES + 9)(body) if key.startswith("contrib") else body)
    # Rank 1 reduces the only shard, before and after the amendments.
    peers = [run.start(rank, faults=faults if rank > 1 else None) for rank in range(13)]
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand(lambda _: [0, 1])}
    assert _last_revision(run, 1) == 2
    assert _members(run, 1) == [0, 1]


def _members(run: Run, round_: int) -> list[int]:
    return [member.rank for member in run.commit(round_, _last_revision(run, round_)).members]


def _last_revision(run: Run, round_: int) -> int:
    return len(list((run.root / "amendments").glob(f"{round_:08d}-*")))


def _diverging(rank: int, round_: int, count: int) -> Floats:
    values = gradient_of(rank, round_, count)
    if (rank, round_) == (1, 2):
        values[0] = np.nan
    return values


def test_a_diverged_replica_says_so_and_trains_on_from_the_global_parameters(tmp_path: Path) -> None:
    run = Run(tmp_path, min_participants=2)
    peers = [run.start(rank, gradient=_diverging) for rank in range(3)]
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    [excluded] = run.commit(2).excluded
    assert excluded.rank == 1
    assert excluded.reason.startswith("its pseudo-gradient cannot be averaged: ")
    assert [member.rank for member in run.commit(3).members] == [0, 1, 2]


def test_a_diverged_replica_ends_the_run_at_once_when_every_one_is_needed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    peers = [run.start(rank, gradient=_diverging) for rank in range(3)]
    with all_ended(peers):
        errors = [peer.join().error for peer in peers]
    assert isinstance(errors[1], DivergedError)
    assert isinstance(errors[0], RendezvousError)
    for error in errors:
        assert "Round 2 can no longer reach 3 participants (rank 1: its pseudo-gradient cannot be averaged" in str(
            error
        )
