import base64
import math
from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contract.run.commit import Commit, Exclusion
from muster.contract.run.round_values import METRICS_MAX
from muster.report.page_model import MetricView
from muster.report.rounds import CELLS_MAX, RoundTable, chosen, rounds_max
from muster.report.words import UTILISATION
from tests.support.round_commits import START, commit


def cells(metric: MetricView) -> list[float]:
    raw = base64.b64decode(metric.cells)
    if metric.bits == 32:
        return list(array("f", raw))
    step = (metric.greatest - metric.least) / 254
    steps = np.frombuffer(raw, np.uint8)
    values: list[float] = np.where(steps == 255, math.nan, metric.least + steps * step).tolist()
    return values


def test_rounds_are_merged_by_weight_and_kept_by_rank() -> None:
    table = RoundTable(3, START)
    table.add(commit(1, {0: {"loss": 4.0}, 1: {"loss": 1.0}}, second=10))
    left_out = {"excluded": (Exclusion(rank=1, reason="checksum"),), "absent": (2, 3)}
    table.add(commit(2, {0: {"loss": 2.0}, 2: {"loss": 1.0}}, second=14).model_copy(update=left_out))
    view = table.view()
    [loss] = view.metrics
    # Weights are 1, 2 and 3.
    assert loss.mean == (2.0, 1.25)
    assert (loss.low, loss.high) == ((1.0, 1.0), (4.0, 2.0))
    assert cells(loss) == pytest.approx([4.0, 2.0, 1.0, math.nan, math.nan, 1.0], nan_ok=True)
    assert (view.numbers, view.members, view.at, view.total) == ((1, 2), (2, 2), (10.0, 14.0), 2)
    assert (view.excluded, view.absent) == ((0, 1), (0, 2))


def test_a_round_lasts_since_the_one_before_and_the_first_since_the_start_of_the_run() -> None:
    table = RoundTable(2, START)
    for number, second in ((1, 10), (2, 20), (4, 60)):
        table.add(commit(number, {0: {}, 1: {}}, second=second))
    view = table.view()
    # Between 2 and 4 there are two.
    assert view.seconds == (10.0, 10.0, 20.0)
    # The first one began with the launch: it has no rate.
    assert view.rates == (None, 0.3, 0.15)
    # Of a continuation, the first round that is left may be any.
    later = RoundTable(2, START)
    later.add(commit(7, {0: {}}, second=10))
    assert later.view().seconds == (None,)


def logged(number: int, metrics: dict[str, float], ages: tuple[int, ...], *, ranks: int = 2) -> Commit:
    made = commit(number, dict.fromkeys(range(ranks), metrics), second=10 * number)
    return made.model_copy(update={"members": tuple(one.model_copy(update={"logged": ages}) for one in made.members)})


def test_a_metric_is_shown_at_the_round_in_which_it_was_logged() -> None:
    table = RoundTable(2, START)
    # By name: the accuracy is measured every second round, the loss after each one, the norm before it.
    table.add(logged(1, {"accuracy": 0.1, "loss": 9.0, "norm": 1.0}, (1, 1, 0)))
    table.add(logged(2, {"accuracy": 0.1, "loss": 8.0, "norm": 2.0}, (2, 1, 0)))
    table.add(logged(3, {"accuracy": 0.2, "loss": 7.0, "norm": 3.0}, (1, 1, 0)))
    before = {metric.name: metric.mean for metric in table.view().metrics}
    assert before == {"accuracy": (None, 0.2, None), "loss": (8.0, 7.0, None), "norm": (1.0, 2.0, 3.0)}
    # What was logged after the last round is in the manifests.
    table.add_last((rank, 3, {"accuracy": 0.2, "loss": 6.0, "norm": 3.0, "round": 3.0}) for rank in (0, 1))
    after = {metric.name: metric.mean for metric in table.view().metrics}
    # The accuracy is that of round 2, and not of the last one.
    assert after == {"accuracy": (None, 0.2, None), "loss": (8.0, 7.0, 6.0), "norm": (1.0, 2.0, 3.0)}


def test_the_last_metrics_are_those_of_replicas_that_hold_the_last_round() -> None:
    table = RoundTable(2, START)
    for number in (1, 2):
        table.add(logged(number, {"loss": float(number)}, (1,)))
    table.add_last([(0, 1, {"loss": 5.0}), (1, None, {"loss": 5.0}), (7, 2, {"loss": 5.0}), (1, 2, {"loss": math.inf})])
    assert table.view().metrics[0].mean == (2.0, None)
    # With the weights of its round, of which rank 1 has two thirds.
    table.add_last([(1, 2, {"loss": 1.5, "unknown": 1.0}), (0, 2, {"loss": 4.5})])
    assert table.view().metrics[0].mean == (2.0, 2.5)


def test_what_replicas_write_cannot_break_the_table() -> None:
    table = RoundTable(2, START)
    table.add(commit(3, {0: {"loss": 1e308, "x": -1e308}, 1: {"x": 1e308}, 7: {"loss": 1.0}}))
    table.add(commit(2, {0: {"loss": 1.0}}))  # out of order
    table.add(commit(4, {0: {"loss": 1e300}}).model_copy(update={"committed_at": "yesterday"}))
    for number in range(5, 9):
        table.add(commit(number, {0: {f"m{number}-{index}": 1.0 for index in range(32)}}))
    view = table.view()
    assert view.numbers == (3, 4, 5, 6, 7, 8)
    assert len(view.metrics) == METRICS_MAX
    assert view.model_dump_json()
    assert all(len(metric.mean) == 6 for metric in view.metrics)


def test_the_values_of_a_large_run_fit_into_a_function() -> None:
    table = RoundTable(10_000, START)
    metrics = {**{f"m{index}": 1.0 for index in range(31)}, UTILISATION: 0.9}
    table.add(commit(1, {0: metrics}))
    shown = [metric.name for metric in table.view().metrics]
    # 4 bytes for each rank and each of 500 rounds.
    assert len(shown) * 4 * 10_000 * 500 < 270_000_000
    assert UTILISATION in shown
    assert len(shown) == 13


@given(
    values=st.lists(st.floats(-1e6, 1e6, allow_nan=False, width=32), min_size=2, max_size=6),
    rounds=st.integers(1, 4),
)
@settings(max_examples=10)  # each has 125,000 replicas
def test_a_byte_is_near_to_its_value(values: list[float], rounds: int) -> None:
    many = CELLS_MAX // 8
    table = RoundTable(many, START)
    for number in range(1, rounds + 2):
        table.add(commit(number, {**{rank: {"loss": value} for rank, value in enumerate(values)}, many - 1: {}}))
    [metric] = table.view().metrics
    read = cells(metric)
    columns = math.ceil((rounds + 1) / metric.bucket)
    assert len(read) == many * columns
    tolerance = (metric.greatest - metric.least) / 254 + 1e-3 * max(map(abs, values)) + 1e-9
    for rank, value in enumerate(values):
        assert read[rank * columns] == pytest.approx(value, abs=tolerance)
    assert math.isnan(read[-1])


def test_too_many_rounds_are_read_evenly_with_the_first_and_the_last() -> None:
    assert [rounds_max(replicas) for replicas in (0, 1, 1_000, 4_000, 10_000)] == [500, 500, 500, 500, 200]
    keys = [f"{number:08d}" for number in range(10_000)]
    some = chosen(keys, 500)
    assert len(some) == len(set(some)) == 500
    assert (some[0], some[-1]) == (keys[0], keys[-1])
    gaps = {int(after) - int(before) for before, after in pairwise(some)}
    assert gaps == {20, 21}
    assert chosen(keys[:7], 500) == keys[:7]


def test_the_members_of_a_round_measure_its_duration_better_than_whole_seconds_of_the_store() -> None:
    table = RoundTable(1, START)
    for number, second in ((1, 10), (2, 10), (3, 11), (4, 30)):
        made = commit(number, {0: {}}, second=second)
        members = tuple(one.model_copy(update={"time": (400, 0, 100)}) for one in made.members)
        table.add(made.model_copy(update={"members": members, "last": 0}))
    # The last one took longer than its member can say: the difference is more than the store's.
    assert table.view().seconds == (10.0, 0.5, 0.5, 19.0)
