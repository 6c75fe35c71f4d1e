"""When a round can be committed: quorum, grace, claims, exclusions."""

from __future__ import annotations

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.rounds.quorum import Decision, Quorum, RollCall

GRACE = 10.0


def member(rank: int, epoch: int = 1) -> Member:
    return Member(rank=rank, attempt=1, incarnation=1, epoch=epoch, weight=1.0, checksum="0" * 8)


def committed(ranks: list[int], excluded: tuple[int, ...] = (), epochs: tuple[int, ...] = (1, 1, 1, 1)) -> Commit:
    return Commit(
        run="r",
        round=1,
        committed_at="",
        count=1,
        members=tuple(member(rank) for rank in ranks),
        excluded=tuple(Exclusion(rank=rank, reason="NaN") for rank in excluded),
        epochs=epochs,
    )


def roll(previous: Commit | None, *present: int, least: int = 2) -> RollCall:
    call = RollCall(Quorum(4, least, GRACE), GRACE, previous)
    for rank in present:
        call.contributed(member(rank))
    return call


def test_all_who_are_expected_make_a_round_at_once() -> None:
    assert roll(None, 0, 1, 2, 3).decide(0.0) is Decision.COMMIT
    assert roll(committed([0, 2, 3]), 0, 2, 3).decide(0.0) is Decision.COMMIT


def test_a_quorum_waits_for_the_others_as_long_as_the_grace_lasts() -> None:
    call = roll(None, 0, 1)
    assert call.decide(100.0) is Decision.WAIT
    assert call.decide(109.9) is Decision.WAIT
    assert call.decide(110.0) is Decision.COMMIT


def test_grace_begins_with_the_quorum_and_not_before() -> None:
    call = roll(None, 0)
    assert call.decide(0.0) is Decision.WAIT
    call.contributed(member(1))
    assert call.decide(100.0) is Decision.WAIT
    assert call.decide(110.0) is Decision.COMMIT


def test_less_than_a_quorum_waits_for_ever() -> None:
    assert roll(committed([0, 1]), 0, 1, least=3).decide(1e9) is Decision.WAIT


def test_on_the_last_call_a_quorum_waits_for_nobody_and_less_than_one_still_does() -> None:
    assert roll(None, 0, 1).decide(0.0, last_call=True) is Decision.COMMIT
    assert roll(None, 0).decide(0.0, last_call=True) is Decision.WAIT


def test_the_absent_are_those_who_are_waited_for() -> None:
    call = roll(committed([0, 1, 2]), 0)
    assert call.absent == (1, 2)
    assert call.open_ranks == [1, 2, 3]


def test_a_rank_that_is_claimed_anew_is_waited_for() -> None:
    call = roll(committed([0, 1]), 0, 1)
    call.claimed(2, 2)
    assert call.decide(0.0) is Decision.WAIT
    call.contributed(member(2, epoch=2))
    assert call.decide(0.1) is Decision.COMMIT


def test_what_a_superseded_process_gave_does_not_count() -> None:
    call = roll(committed([0, 1]), 0, 1)
    call.claimed(1, 2)
    assert [item.rank for item in call.members] == [0]
    assert call.decide(0.0) is Decision.WAIT


def test_a_claim_that_is_known_changes_nothing() -> None:
    call = roll(committed([0, 1]), 0, 1)
    call.claimed(1, 1)
    assert call.decide(0.0) is Decision.COMMIT


def test_who_was_excluded_is_expected_again_in_the_next_round() -> None:
    call = roll(committed([0, 1], excluded=(2,)), 0, 1)
    assert call.decide(0.0) is Decision.WAIT


def test_an_excluded_rank_is_not_waited_for() -> None:
    call = roll(None, 0, 1, 3)
    call.exclude(2, "NaN")
    assert call.decide(0.0) is Decision.COMMIT
    assert call.exclusions == (Exclusion(rank=2, reason="NaN"),)


def test_it_is_hopeless_once_exclusions_leave_too_few_ranks_for_a_quorum() -> None:
    call = roll(None, 0, least=4)
    call.exclude(2, "NaN")
    assert call.decide(0.0) is Decision.HOPELESS


def test_absent_ranks_keep_hope_alive() -> None:
    call = roll(committed([0, 1]), 0, 1, least=3)
    call.exclude(2, "NaN")
    assert call.decide(0.0) is Decision.WAIT
