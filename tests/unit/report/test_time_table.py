"""What each replica did in each round, from what their contributions say."""

from __future__ import annotations

import base64

import pytest

from muster.contract.run.commit import Commit
from muster.contract.run.time_use import Activity, spent_on
from muster.report.page_model import TimesView
from muster.report.time_table import KINDS, SHARES_MAX, TimeTable
from tests.support.round_commits import commit

Spent = dict[int, dict[Activity, float]]
T, W, E, S, L = Activity.TRAINING, Activity.WAITING, Activity.EXCHANGING, Activity.SAVING, Activity.LOADING


def timed(number: int, spent: Spent, *, last: int | None = None) -> Commit:
    made = commit(number, {rank: {} for rank in spent})
    members = (one.model_copy(update={"time": spent_on(spent[one.rank])}) for one in made.members)
    return made.model_copy(update={"members": tuple(members), "last": last})


def shares(view: TimesView | None, rank: int, row: int) -> dict[Activity, float]:
    """The shares of a round, as far as a byte is exact."""
    assert view is not None
    raw = base64.b64decode(view.shares)
    width = len(raw) // len(view.by_rank[0])
    begin = rank * width + row * KINDS
    found = zip(Activity, raw[begin : begin + KINDS], strict=True)
    return {kind: round(value / 255, 2) for kind, value in found if value}


def test_the_waiting_belongs_to_the_round_before_the_contribution_that_says_it() -> None:
    table = TimeTable(2)
    table.add(timed(1, {0: {L: 4, T: 6}, 1: {L: 4, T: 26}}, last=1), 40, 1)
    table.add(timed(2, {0: {T: 6, W: 20, E: 2}, 1: {T: 18, W: 0.5, E: 2}}, last=1), 20, 1)
    view = table.view()
    assert view is not None
    assert shares(view, 0, 0) == {T: 0.15, W: 0.5, L: 0.1}
    assert shares(view, 1, 0) == {T: 0.65, W: 0.01, L: 0.1}
    # Of the last round, the first one has waited for what is left; the last one has not.
    assert shares(view, 0, 1) == {T: 0.3, W: 0.6, E: 0.1}
    assert shares(view, 1, 1) == {T: 0.9, E: 0.1}
    means = dict(zip(Activity, view.means, strict=True))
    assert means == {T: (16.0, 12.0), W: (10.25, 6.0), E: (0.0, 2.0), S: (0.0, 0.0), L: (4.0, 0.0)}
    assert view.by_rank == ((12.0, 44.0), (32.0, 0.5), (2.0, 2.0), (0.0, 0.0), (4.0, 4.0))


def test_a_replica_that_comes_back_has_loaded_in_the_rounds_without_it() -> None:
    table = TimeTable(2)
    for number in range(1, 5):
        spent: Spent = {0: {T: 10}}
        if number in {1, 4}:
            spent[1] = {L: 8, T: 10} if number == 4 else {T: 10}
        table.add(timed(number, spent), 10, 1)
    view = table.view()
    assert [shares(view, 1, row) for row in range(4)] == [{T: 1.0}, {}, {L: 0.8}, {T: 1.0}]
    assert view is not None
    assert view.means[list(Activity).index(L)] == (0.0, 0.0, 0.0, 0.0), "the mean of a round is that of its members"
    assert view.by_rank[0] == (40.0, 20.0)


def test_rounds_that_were_not_read_count_as_those_that_were() -> None:
    table = TimeTable(1)
    table.add(timed(1, {0: {T: 10}}), 10, 1)
    table.add(timed(11, {0: {T: 6, W: 3, E: 1}}), 100, 10)
    view = table.view()
    assert shares(view, 0, 1) == {T: 0.6, W: 0.3, E: 0.1}
    assert view is not None
    assert view.by_rank[0] == (70.0,)


def test_what_a_replica_says_of_its_time_is_bounded_by_the_round() -> None:
    table = TimeTable(2)
    table.add(timed(1, {0: {T: 1e9}, 1: {T: 5}, 7: {T: 5}}), 10, 1)
    table.add(timed(2, {0: {W: 1e9}, 1: {T: 5}}), 0, 1)
    view = table.view()
    assert shares(view, 0, 0) == {T: 1.0, W: 1.0}
    assert shares(view, 0, 1) == {}
    assert view is not None
    assert view.model_dump_json()


def test_commits_of_older_versions_say_no_times() -> None:
    table = TimeTable(1)
    assert table.view() is None
    table.add(commit(1, {0: {}}), 10, 1)
    assert table.view() is None
    table.add(timed(2, {0: {T: 5, W: 1}}), 10, 1)
    view = table.view()
    assert view is not None
    assert view.means[0] == (None, 5.0)


@pytest.mark.parametrize("replicas", [1_000, 10_000])
def test_the_table_of_a_large_run_is_small(replicas: int) -> None:
    table = TimeTable(replicas)
    everyone: Spent = {rank: {T: 1, W: 1} for rank in range(replicas)}
    made = timed(1, everyone)
    for number in range(1, 101):
        table.add(made, number % 3, 1)
    view = table.view()
    assert view is not None
    assert len(view.shares) <= 4 / 3 * (SHARES_MAX + KINDS * replicas)
    # Merged rounds have the mean of their shares, weighted with their durations.
    assert shares(view, replicas - 1, 0)[T] == pytest.approx(2 / 3, abs=0.35)
