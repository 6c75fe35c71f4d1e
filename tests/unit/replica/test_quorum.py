"""When a round can be committed: quorum, grace, claims, exclusions."""

from __future__ import annotations

from muster.contract.run.commit import Commit, Exclusion, Finish, Member
from muster.replica.rounds.quorum import Decision, Quorum, QuorumTally

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


def tally(previous: Commit | None, *present: int, least: int = 2) -> QuorumTally:
    seen = QuorumTally(Quorum(4, least, GRACE), GRACE, previous)
    for rank in present:
        seen.contributed(member(rank))
    return seen


def test_all_who_are_expected_make_a_round_at_once() -> None:
    assert tally(None, 0, 1, 2, 3).decide(0.0) is Decision.COMMIT
    assert tally(committed([0, 2, 3]), 0, 2, 3).decide(0.0) is Decision.COMMIT


def test_a_quorum_waits_for_the_others_as_long_as_the_grace_lasts() -> None:
    seen = tally(None, 0, 1)
    assert seen.decide(100.0) is Decision.WAIT
    assert seen.decide(109.9) is Decision.WAIT
    assert seen.decide(110.0) is Decision.COMMIT


def test_grace_begins_with_the_quorum_and_not_before() -> None:
    seen = tally(None, 0)
    assert seen.decide(0.0) is Decision.WAIT
    seen.contributed(member(1))
    assert seen.decide(100.0) is Decision.WAIT
    assert seen.decide(110.0) is Decision.COMMIT


def test_less_than_a_quorum_waits_for_ever() -> None:
    assert tally(committed([0, 1]), 0, 1, least=3).decide(1e9) is Decision.WAIT


def test_after_the_time_out_a_quorum_commits_without_waiting_and_less_than_one_still_waits() -> None:
    assert tally(None, 0, 1).decide(0.0, timed_out=True) is Decision.COMMIT
    assert tally(None, 0).decide(0.0, timed_out=True) is Decision.WAIT


def test_the_absent_are_those_who_are_waited_for() -> None:
    seen = tally(committed([0, 1, 2]), 0)
    assert seen.absent == (1, 2)
    assert seen.open_ranks == [1, 2, 3]


def test_a_rank_that_is_claimed_anew_is_waited_for() -> None:
    seen = tally(committed([0, 1]), 0, 1)
    seen.claimed(2, 2)
    assert seen.decide(0.0) is Decision.WAIT
    seen.contributed(member(2, epoch=2))
    assert seen.decide(0.1) is Decision.COMMIT


def test_what_a_superseded_process_gave_does_not_count() -> None:
    seen = tally(committed([0, 1]), 0, 1)
    seen.claimed(1, 2)
    assert [item.rank for item in seen.members] == [0]
    assert seen.decide(0.0) is Decision.WAIT


def test_a_claim_that_is_known_changes_nothing() -> None:
    seen = tally(committed([0, 1]), 0, 1)
    seen.claimed(1, 1)
    assert seen.decide(0.0) is Decision.COMMIT


def test_who_was_excluded_is_expected_again_in_the_next_round() -> None:
    seen = tally(committed([0, 1], excluded=(2,)), 0, 1)
    assert seen.decide(0.0) is Decision.WAIT


def test_an_excluded_rank_is_not_waited_for() -> None:
    seen = tally(None, 0, 1, 3)
    seen.exclude(2, "NaN")
    assert seen.decide(0.0) is Decision.COMMIT
    assert seen.exclusions == (Exclusion(rank=2, reason="NaN"),)


def test_it_is_hopeless_once_exclusions_leave_too_few_ranks_for_a_quorum() -> None:
    seen = tally(None, 0, least=4)
    seen.exclude(2, "NaN")
    assert seen.decide(0.0) is Decision.HOPELESS


def test_absent_ranks_keep_hope_alive() -> None:
    seen = tally(committed([0, 1]), 0, 1, least=3)
    seen.exclude(2, "NaN")
    assert seen.decide(0.0) is Decision.WAIT


def of_states(states: dict[int, str | None], least: int = 2) -> QuorumTally:
    seen = QuorumTally(Quorum(4, least, GRACE), GRACE, None)
    for rank, state in states.items():
        seen.contributed(member(rank), state)
    return seen


def test_contributions_that_start_from_other_parameters_than_most_are_excluded() -> None:
    seen = of_states({0: "a" * 8, 1: "b" * 8, 2: "a" * 8, 3: None})
    assert ([item.rank for item in seen.members], seen.state) == ([0, 2, 3], "a" * 8)
    [excluded] = seen.exclusions
    assert excluded.rank == 1
    assert excluded.reason.startswith("its parameters before the round have the digest bbbbbbbb, those of most others")
    assert seen.decide(0.0) is Decision.COMMIT


def test_the_parameters_of_one_contribution_alone_are_not_taken_for_the_runs() -> None:
    assert of_states({0: "a" * 8}, least=1).confirmed_state is None
    assert of_states({0: "a" * 8, 1: None}).confirmed_state is None
    assert of_states({0: "a" * 8, 1: "a" * 8}).confirmed_state == "a" * 8


def test_a_tie_between_parameters_is_left_to_those_who_come() -> None:
    seen = of_states({0: "a" * 8, 1: "b" * 8}, least=3)
    assert (seen.members, seen.decide(1e9, timed_out=True)) == ((), Decision.WAIT)
    seen.contributed(member(2), "a" * 8)
    assert seen.decide(0.0) is Decision.WAIT
    seen.contributed(member(3), "a" * 8)
    assert [item.rank for item in seen.members] == [0, 2, 3]
    assert seen.decide(0.0) is Decision.COMMIT


def test_a_tie_between_parameters_is_hopeless_if_all_have_contributed() -> None:
    seen = of_states({0: "a" * 8, 1: "b" * 8, 2: "a" * 8, 3: "b" * 8}, least=1)
    assert seen.decide(0.0) is Decision.HOPELESS
    assert [item.rank for item in seen.exclusions] == [0, 1, 2, 3]


def test_a_new_process_of_a_rank_with_other_parameters_brings_hope() -> None:
    seen = of_states({0: "a" * 8, 1: "b" * 8}, least=4)
    seen.contributed(member(2), "a" * 8)
    seen.contributed(member(3), "a" * 8)
    assert seen.decide(0.0) is Decision.HOPELESS
    seen.claimed(1, 2)
    assert seen.decide(0.0) is Decision.WAIT
    seen.contributed(member(1, epoch=2), "a" * 8)
    assert seen.decide(0.0) is Decision.COMMIT


def finish_of(rank: int) -> Finish:
    return Finish(rank=rank, run="r", round=1, how="its trainer returned")


def test_who_has_finished_is_not_waited_for_and_counts_towards_the_quorum() -> None:
    seen = tally(committed([0, 1, 2, 3]), 0, 1, least=4)
    seen.finished_with(2, finish_of(3))
    assert (seen.needed, seen.absent, seen.epochs[3]) == (3, (2,), 2)
    assert seen.decide(1e9, timed_out=True) is Decision.WAIT
    seen.contributed(member(2))
    assert seen.decide(0.0) is Decision.COMMIT
    assert [item.rank for item in seen.finished] == [3]


def test_the_last_one_needs_nobody() -> None:
    seen = tally(committed([0, 1, 2, 3]), 0)
    for rank in (1, 2, 3):
        seen.finished_with(2, finish_of(rank))
    assert (seen.needed, seen.decide(0.0)) == (1, Decision.COMMIT)


def test_what_a_process_gave_does_not_count_once_it_has_finished_without_the_round() -> None:
    seen = tally(committed([0, 1]), 0, 1)
    seen.finished_with(2, finish_of(1))
    assert [item.rank for item in seen.members] == [0]


def test_a_rerun_of_a_replica_that_had_finished_is_waited_for() -> None:
    seen = tally(committed([0, 1]), 0)
    seen.finished_with(2, finish_of(1))
    assert seen.decide(0.0) is Decision.COMMIT
    seen.claimed(1, 3)
    assert (seen.finished, seen.absent, seen.decide(0.0)) == ((), (1,), Decision.WAIT)


def test_it_is_hopeless_if_only_those_who_have_finished_are_left() -> None:
    seen = tally(committed([0, 1, 2, 3]), 0, least=4)
    seen.finished_with(2, finish_of(3))
    seen.exclude(1, "NaN")
    seen.exclude(2, "NaN")
    assert seen.decide(0.0) is Decision.HOPELESS
