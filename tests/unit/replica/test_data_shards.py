"""Shards of the data: each is trained once an epoch, whatever becomes of the replicas that train them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from muster.contract.run.commit import Member
from muster.contract.run.trained_data import PIECES_MAX, Begun, DataProgress, Piece, TrainedData, Turn
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.options.shards.replica.deal import Place, dealt, order
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Shards
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.replica_errors import ParametersError, StoppedError
from muster.replica.rounds.quorum import Quorum, QuorumDecision, QuorumTally
from tests.support.contexts import context_of
from tests.support.peers import Run, missing_only_in
from tests.support.shard_schedules import play
from tests.support.shard_training import COUNT, Gone, Training

NUMBERS = np.arange(103)
ONCE = dict.fromkeys(range(103), 1)


def by_arrays(shards: Shards) -> Iterator[Any]:
    return (numbers for (numbers,) in shards.arrays(NUMBERS, batch_size=4))


def data(*pieces: tuple[int, int, int], turn: Turn = Turn.DEALT, shards: int = 10) -> TrainedData:
    return TrainedData(shards=shards, pieces=tuple(Piece(*piece) for piece in pieces), turn=turn)


def member(rank: int, trained: TrainedData | None) -> Member:
    return Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1, checksum="00000000", data=trained)


def test_no_item_is_lost_or_repeated_in_random_schedules() -> None:
    played = play(range(300))
    assert sum(one.left_out for one in played) > 100
    assert sum(one.resumed for one in played) > 30
    assert max(one.widest for one in played) < 128 * 16


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(sync_every=5),
        Algorithm(sync_every=5, delay=2, alpha=0.5),
        Algorithm(sync_every=4, eager=True),
        Algorithm(sync_every=6, fragments=2, delay=1),
    ],
    ids=["plain", "delayed", "eager", "fragments"],
)
def test_replicas_train_each_example_once_an_epoch_and_end_with_the_same_round(
    tmp_path: Path, algorithm: Algorithm
) -> None:
    run = Run(tmp_path / "run")
    training = Training(run, 10, algorithm, epochs=2)
    assert training.all_train([context_of(run, rank) for rank in range(3)], by_arrays) == []
    assert training.counted() == dict.fromkeys(range(103), 2)
    assert len(training.left) == 1


@pytest.mark.parametrize("delay", [0, 2])
def test_a_contribution_that_does_not_count_gives_its_shards_back(tmp_path: Path, delay: int) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)
    training = Training(run, 24, Algorithm(sync_every=5, delay=delay))
    spoilt: list[int] = []

    def step(outer: DiLoCo, batch: Any) -> float:
        if (outer._rendezvous.rank, outer.round, outer.steps) == (1, 1, 2):
            spoilt.extend(map(int, batch))
            return float("nan")
        return 1.0

    def read(shards: Shards) -> Iterator[Any]:
        # Each step trains a shard.
        return (numbers for (numbers,) in shards.arrays(NUMBERS[:96], batch_size=4))

    assert training.all_train([context_of(run, rank) for rank in range(2)], read, step) == []
    (excluded,) = run.commit(2).excluded
    assert "cannot be averaged" in excluded.reason
    assert spoilt in training.trained[1, 2]
    assert training.counted() == Counter(range(96))
    before, void = run.commit(1).data_after, run.commit(2).model_copy(update={"void": True}).data_after
    assert before is not None
    assert void is not None
    assert (void.low, void.counted) == (before.low, before.counted)


def test_the_shard_of_a_dead_replica_is_taken_up_in_its_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing_only_in(monkeypatch, 3)
    run = Run(tmp_path / "run", replicas=2, min_participants=1)
    training = Training(run, 2)

    def step(outer: DiLoCo, batch: Any) -> float:
        if outer.round == 2 and batch[0] >= 1000:
            raise Gone
        return 1.0

    # The first use is rank 0's.
    first, second = order(2, 0, 0).tolist()
    sizes = {first: range(60), second: range(1000, 1060)}

    def read(shards: Shards) -> Iterator[Any]:
        return shards.batches(lambda shard: sizes[shard], 4)

    (error,) = training.all_train([context_of(run, rank) for rank in range(2)], read, step)
    assert isinstance(error, Gone)
    assert run.commit(2).data_after == DataProgress(shards=2, begun=(Begun(0, 40, 0), Begun(1, 40, 1)))
    assert training.trained[0, 4][0] == [1040, 1041, 1042, 1043]
    assert training.counted() == Counter([*sizes[first], *sizes[second]])


def test_a_stopped_replica_goes_on_in_the_middle_of_its_phase(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "run")
    training = Training(run, 10)
    context = context_of(run)

    def step(outer: DiLoCo, _: Any) -> float:
        if (outer.round, outer.steps) == (2, 2):
            context.rendezvous.context.stops.terminate()
        return 1.0

    with pytest.raises(StoppedError):
        training.train(context, by_arrays, step)
    before = [list(numbers) for numbers in training.trained[0, 3]]
    training.train(context_of(run, attempt=2), by_arrays)
    assert training.trained[0, 3][:3] == before
    assert training.counted() == ONCE


def test_a_killed_replica_goes_on_from_an_inner_state_with_what_that_had_trained(tmp_path: Path) -> None:
    run, tiers = Run.alone(tmp_path / "run"), CheckpointTiers(memory_every=2)
    training = Training(run, 10, Algorithm(sync_every=8))

    def step(outer: DiLoCo, _: Any) -> float:
        outer._tiers.wait(10)  # type: ignore[union-attr]
        if (outer.round, outer.steps) == (1, 5):
            raise Gone
        return 1.0

    with pytest.raises(Gone):
        training.train(context_of(run, checkpoints=tiers), by_arrays, step)
    again = context_of(run, attempt=2, checkpoints=tiers)
    training.train(again, by_arrays)
    assert again.rendezvous.statistics.resumed is not None
    assert (again.rendezvous.statistics.resumed.round, again.rendezvous.statistics.resumed.step) == (1, 4)
    assert training.counted() == ONCE


def test_the_processes_of_a_replica_have_parts_of_the_same_batches(tmp_path: Path) -> None:
    found = []
    for index in range(2):
        context = context_of(Run.alone(tmp_path / f"run-{index}"))
        shards = context.shards(10, epochs=1, part=(index, 2))
        outer = DiLoCo(context.rendezvous, np.zeros(COUNT, np.float32), Algorithm(sync_every=5))
        found.append([])
        for (numbers,) in shards.arrays(NUMBERS, batch_size=3):
            found[-1].append(numbers.tolist())
            outer.step()
        outer.finish()
    assert len(found[0]) == len(found[1])
    # The last batch has one example, which both processes train: neither may be without.
    assert Counter(number for batches in found for batch in batches for number in batch) == ONCE | {found[0][-1][0]: 2}


def test_items_are_read_on_where_training_goes_on_and_a_loop_where_it_was_left(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "run")
    loads: list[int] = []

    def load(shard: int) -> Iterator[int]:
        loads.append(shard)
        yield from range(10 * shard, 10 * shard + 10)

    context = context_of(run)
    shards = context.shards(3, epochs=1)
    outer = DiLoCo(context.rendezvous, np.zeros(COUNT, np.float32), Algorithm(sync_every=4))
    found = []
    for item in shards.items(load):
        if item % 10 == 7 and len(loads) == 1:
            break  # before its step: it was not trained
        found.append(item)
        outer.step()
    assert (shards.epoch, shards.done) == (0, 0)
    for (item,) in shards.batches(load, 1, ahead=2):
        found.append(item)
        outer.step()
    assert sorted(found) == list(range(30))
    assert (shards.epoch, shards.done) == (1, 0)
    # The first shard again in the second loop, and none of them because of a round.
    assert loads == [loads[0], loads[0], *order(3, 0, 0).tolist()[1:]]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda context: context.shards(0), "total is 0; allowed: 1 to 1,000,000, the shards of the data set"),
        (lambda context: context.shards(2, part=(2, 2)), r"part is \(2, 2\); allowed"),
        (lambda context: (context.shards(2), context.shards(2)), "context.shards was called before"),
        (lambda context: next(context.shards(2).items(range)), "The shards are read before DiLoCo is created"),
        (lambda context: context.shards(200).arrays(NUMBERS, batch_size=2), "103 examples for 200 shards"),
        (lambda context: context.shards(2).loader(iter([]), batch_size=2), "dataset is of type list_iterator"),
        (lambda context: context.shards(2).loader([1, 2], batch_size=2, in_order=False), r"loader\(\) got in_order"),
    ],
)
def test_a_wrong_use_is_an_error_that_says_what_to_do(
    tmp_path: Path, use: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(ParametersError, match=message):
        use(context_of(Run.alone(tmp_path / "run")))


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda _: [], "cannot be trained: it has no items"),
        (lambda _: [1, 2], "read without a step"),
    ],
)
def test_a_loop_that_cannot_go_on_is_an_error(tmp_path: Path, load: Callable[[int], list[int]], message: str) -> None:
    context = context_of(Run.alone(tmp_path / "run"))
    shards = context.shards(2, epochs=1)
    DiLoCo(context.rendezvous, np.zeros(COUNT, np.float32))
    with pytest.raises(ParametersError, match=message):
        list(shards.items(load))


def test_a_run_keeps_its_number_of_shards(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "run")
    Training(run, 10).train(context_of(run), by_arrays)
    with pytest.raises(ParametersError, match="total is 11; allowed: 10, the shards with which the run was begun"):
        Training(run, 11).train(context_of(run, attempt=2), by_arrays)


def test_commits_of_a_trainer_without_shards_say_nothing_of_data(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "run", rounds=1)
    run.start(0).parameters()
    assert b'"data"' not in run.commit(1).to_json()


def test_a_replica_that_has_joined_is_left_out_where_it_has_trained_what_another_one_has() -> None:
    tally = QuorumTally(Quorum(4, 2, 10.0), 10.0, None)
    tally.contributed(member(0, data((0, 0, -1), (4, 0, 3), turn=Turn.JOINED)))
    tally.contributed(member(1, data((1, 0, -1))))
    assert [one.rank for one in tally.members] == [0, 1]
    tally.contributed(member(2, data((4, 0, -1))))
    tally.contributed(member(3, data((2, 5, -1))))
    assert [one.rank for one in tally.members] == [1, 2]
    assert [(one.rank, one.reason) for one in tally.exclusions] == [
        (0, "it has trained use 4 of the shards, which counts for rank 2"),
        (3, "it has trained use 2 of the shards from item 5 on, which has counted before or is not next"),
    ]


def test_who_trains_a_second_copy_counts_if_the_first_one_fails_and_is_not_missed_otherwise() -> None:
    spare, first = data((9, 0, -1), turn=Turn.SPARE), data((9, 0, -1))
    tally = QuorumTally(Quorum(2, 2, 10.0), 10.0, None)
    tally.contributed(member(0, spare))
    assert tally.decide(0.0) is QuorumDecision.WAIT
    tally.contributed(member(1, first))
    assert tally.decide(0.0) is QuorumDecision.COMMIT
    assert [one.rank for one in tally.members] == [1]
    tally.exclude(1, "it is damaged")
    assert [one.rank for one in tally.members] == [0]


def test_a_use_is_not_left_to_a_rank_that_never_counts() -> None:
    progress = DataProgress(shards=100)
    takers = {rank for round_ in range(3) for rank in range(3) if takes(progress, rank, round_) == 0}
    assert takers == {0, 1, 2}


def takes(progress: DataProgress, rank: int, round_: int) -> int:
    return dealt(progress, Place(rank, (0, 1, 2), 4, round_), 100).uses[0][0]


def test_a_rank_that_joins_begins_behind_what_the_others_may_need() -> None:
    progress = DataProgress(shards=1000)
    expected = {use for rank in range(2) for use, _ in dealt(progress, Place(rank, (0, 1), 4, most=3), 1000).uses[:7]}
    joined = dealt(progress, Place(3, (0, 1), 4, most=3), 1000)
    assert joined.turn is Turn.JOINED
    assert not expected & {use for use, _ in joined.uses}


def test_a_contribution_too_far_ahead_does_not_make_commits_large() -> None:
    progress = DataProgress(shards=10)
    reasons = progress.left_out([member(0, data((1_000_000, 0, -1))), member(1, data((3, 0, -1)))], 4)
    assert reasons == {0: "it has trained use 1000000 of the shards, which is too far ahead of use 0"}
    assert progress.left_out([member(0, data((0, 0, -1), shards=11))], 4) == {
        0: "it trains 11 shards, and the run has 10"
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"low": 5, "counted": [[5, 6]]},
        {"counted": [[3, 3]]},
        {"counted": [[7, 9], [3, 4]]},
        {"low": 5, "begun": [[4, 1, 0]]},
        {"begun": [[4, 1, 0], [4, 2, 0]]},
        {"low": -1},
    ],
)
def test_a_commit_whose_progress_is_impossible_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DataProgress.model_validate_json(json.dumps({"shards": 10, **fields}))


@pytest.mark.parametrize(
    "pieces", [[(0, 0, -1)] * 2, [(0, 5, 3)], [(number, 0, -1) for number in range(PIECES_MAX + 1)], [(-1, 0, 1)]]
)
def test_a_contribution_whose_pieces_are_impossible_is_refused(pieces: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValidationError):
        data(*pieces)


def test_a_contribution_with_the_longest_pieces_and_many_metrics_has_room_in_its_header() -> None:
    pieces = tuple((10**9 + number, 10**6, 10**6 + 1) for number in range(PIECES_MAX))
    metrics = {f"metric_{number:02d}_with_a_name": 0.12345678901234567 for number in range(32)}
    full = replace_metrics(member(10_000, data(*pieces, shards=10**6)), metrics)
    assert len(full.to_line()) < 3_600  # of 4,080, with what else a header has


def replace_metrics(one: Member, metrics: dict[str, float]) -> Member:
    return one.model_copy(update={"metrics": metrics, "logged": (100,) * 32, "time": (10**6,) * 8})


def test_the_order_of_shards_is_the_same_on_every_machine() -> None:
    assert order(8, 0, 0).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]
    assert not np.array_equal(order(100, 0, 0), order(100, 0, 1))
