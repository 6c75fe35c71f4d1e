"""Where the time of replicas goes, as it is added up from round to round."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from muster.contract.run.commit import Commit, Member
from muster.contract.run.time_use import Activity, RoundTimes, TimeUse, seconds_of, spent_on, time_use


def member(**fields: object) -> dict[str, object]:
    return {"rank": 0, "attempt": 1, "incarnation": 1, "epoch": 1, "weight": 1.0, "checksum": "0" * 8, **fields}


def test_a_contribution_says_milliseconds_in_the_order_of_the_activities() -> None:
    spent = spent_on({Activity.TRAINING: 1.2344, Activity.EXCHANGING: 0.05})
    assert spent == (1234, 0, 50)
    assert seconds_of(spent) == {Activity.TRAINING: 1.234, Activity.WAITING: 0.0, Activity.EXCHANGING: 0.05}
    # One of a later version has more activities.
    assert set(seconds_of((1, 2, 3, 4, 5, 6, 7))) == set(Activity)
    assert spent_on({}) == ()


def test_what_a_contribution_says_is_bounded() -> None:
    assert (
        Member.model_validate_json(
            '{"rank":0,"attempt":1,"incarnation":1,"epoch":1,"weight":1,"checksum":"00000000"}'
        ).time
        == ()
    )
    assert spent_on({Activity.TRAINING: -3.0, Activity.SAVING: 1e300}) == (0, 0, 0, 10**11)
    for wrong in ([-1], [10**11 + 1], [0.5], list(range(17)), ["1"]):
        with pytest.raises(ValidationError):
            Member.model_validate(member(time=tuple(wrong)))
    with pytest.raises(ValidationError):
        Member.model_validate(member(logged=(0,) * 33))


def test_waiting_counts_for_the_one_for_whom_the_round_before_waited() -> None:
    first = time_use(None, RoundTimes([(1000,), (4000, 0, 10)], waited_for=1, waited_before=None))
    assert first == TimeUse(rounds=1, spent=(5000, 0, 10), last=(0, 1), held_up=())
    # In round 2, replica 0 says that it waited three seconds for the commit of round 1, which came with replica 1.
    second = time_use(first, RoundTimes([(1000, 3000), (4000, 0, 10)], waited_for=3, waited_before=1))
    assert second == TimeUse(rounds=2, spent=(10_000, 3000, 20), last=(0, 1, 0, 1), held_up=(0, 3000))


def test_no_sum_leaves_its_bounds() -> None:
    full = TimeUse(rounds=1, spent=(10**16,), held_up=(10**16,))
    more = time_use(full, RoundTimes([(5, 5)], waited_for=0, waited_before=0))
    assert (more.spent, more.held_up) == ((10**16, 5), (10**16,))
    assert TimeUse.model_validate_json(more.to_json()) == more


def test_a_round_waits_for_one_that_gave_nothing_or_else_for_the_last_one() -> None:
    commit = Commit(
        run="run",
        round=1,
        committed_at="2026-05-04T03:00:00Z",
        count=1,
        members=(Member.model_validate(member()),),
        epochs=(1,),
        last=0,
    )
    assert commit.waited_for == 0
    assert commit.model_copy(update={"absent": (2, 3)}).waited_for == 2
    assert commit.model_copy(update={"last": None}).waited_for is None


@pytest.mark.parametrize("text", ['{"rounds": %s}', '{"rounds": 1, "last": [%s]}'])
def test_counts_of_rounds_are_bounded(text: str) -> None:
    with pytest.raises(ValidationError):
        TimeUse.model_validate_json(text.replace("%s", "9" * 4_000))
