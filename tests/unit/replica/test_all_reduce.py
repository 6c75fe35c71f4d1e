"""Trainers that bring their own loop: the all-reduce over the rendezvous, through reruns and late replicas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.errors import (
    AlgorithmError,
    DivergedError,
    FencedError,
    HistoryGoneError,
    ParametersError,
    RunEndedError,
    StoppedError,
)
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.inner_group import InnerGroup
from muster.replica.legacy.all_reduce import ObjectStoreAllReduce, OwnRounds
from muster.replica.metrics import Metrics
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire import keys
from tests.support.peers import Faults, FaultyStore, Killed, Run, kill_at, missing_only_in
from tests.support.rendezvous_keys import is_like, of_round

COUNT = 50


@pytest.fixture(autouse=True)
def no_process() -> Iterator[None]:
    """A process has one run; the tests of this one have many."""
    yield
    ObjectStoreAllReduce._process = None


def joined(run: Run, rank: int, attempt: int = 1, faults: Faults | None = None, **context: Any) -> ObjectStoreAllReduce:
    """The all-reduce of one process of a replica."""
    made = run.context(FaultyStore(run.store, faults or Faults()), **context)
    return ObjectStoreAllReduce.of_process(OwnRounds(Rendezvous.open(made, rank, attempt, Metrics())))


def move(rank: int, round_: int) -> np.ndarray[Any, Any]:
    """What the local training of a replica changes."""
    return np.random.default_rng((rank, round_)).standard_normal(COUNT).astype(np.float32)


def loop(all_reduce: ObjectStoreAllReduce, rounds: int = 4, local: list[int] | None = None) -> bytes:
    """A trainer's own loop; the bytes of its parameters. `local` collects the rounds for which it has trained."""
    parameters, momentum = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    for round_ in range(1, rounds + 1):
        difference = np.zeros(COUNT, np.float32)
        if local is None or not all_reduce.behind:
            difference = move(all_reduce.rank, round_)
            if local is not None:
                local.append(round_)
        assert all_reduce.allreduce(difference) is difference
        momentum = np.float32(0.9) * momentum + difference
        parameters -= np.float32(0.7) * momentum
    return parameters.tobytes()


def undisturbed(replicas: int = 3, rounds: int = 4) -> bytes:
    """What `loop` leaves, in plain NumPy."""
    parameters, momentum = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    for round_ in range(1, rounds + 1):
        first, *others = (move(rank, round_) for rank in range(replicas))
        momentum = np.float32(0.9) * momentum + sum(others, first) * np.float32(1 / replicas)
        parameters -= np.float32(0.7) * momentum
    return parameters.tobytes()


def all_left(works: Sequence[Callable[[], bytes]]) -> list[bytes]:
    """What each of the processes leaves, which run at once."""
    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(lambda work: work(), works))


def test_every_replica_has_the_same_bytes_after_every_call(tmp_path: Path) -> None:
    run = Run(tmp_path)
    processes = [joined(run, rank) for rank in range(3)]
    assert set(all_left([partial(loop, one) for one in processes])) == {undisturbed()}
    assert [one.round for one in processes] == [4] * 3
    # A rerun may need every mean; a contribution is not needed once the next round is committed.
    assert len(list((tmp_path / "reduced").rglob("0*-*"))) == 4
    assert {path.name[:8] for path in (tmp_path / "contributions").rglob("0*-*")} == {"00000004"}


@pytest.mark.parametrize(
    ("pattern", "when"),
    [
        (of_round(keys.CONTRIBUTIONS, 3), "before"),
        (of_round(keys.CONTRIBUTIONS, 3), "after"),
        ("commits/00000003", "after"),
        (of_round(keys.REDUCED, 3), "before"),
        (of_round(keys.REDUCED, 3), "after"),
    ],
)
def test_a_rerun_starts_again_from_its_first_call_and_all_end_with_the_same_bytes(
    tmp_path: Path, pattern: str, when: str
) -> None:
    run, hook = Run(tmp_path), kill_at(pattern)
    victim = joined(run, 1, faults=Faults(before_create=hook) if when == "before" else Faults(after_create=hook))
    died = threading.Event()

    def hold(key: str) -> None:
        # The victim comes first to where it dies.
        if is_like(key, pattern):
            assert died.wait(60)

    others = [joined(run, rank, faults=Faults(before_create=hold)) for rank in (0, 2)]
    with ThreadPoolExecutor(2) as pool:
        left = pool.map(loop, others)
        with pytest.raises(Killed):
            loop(victim)
        died.set()
        assert loop(joined(run, 1, attempt=2)) == undisturbed()
        assert list(left) == [undisturbed()] * 2


def test_a_rerun_may_skip_its_local_training_or_restore_a_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    first, other = joined(run, 0), joined(run, 1)
    all_left([partial(loop, first, 3), partial(loop, other, 3)])

    rerun, trained = joined(run, 0, attempt=2), list[int]()
    assert rerun.behind == 3
    left = all_left([partial(loop, rerun, 4, trained), partial(one_more, other, 4)])
    assert (trained, left[0]) == ([4], undisturbed(2))

    again = joined(run, 0, attempt=3)
    again.resume(4)
    assert not again._rounds.rendezvous.claim.loads, "the others do not wait for it"
    metrics = again._rounds.rendezvous.metrics
    assert (again.round, again.behind, metrics.round, metrics.step) == (4, 0, 4, 4)
    assert len(set(all_left([partial(one_more, again, 5), partial(one_more, other, 5)]))) == 1
    for round_ in (4, 6):
        with pytest.raises(ParametersError, match=f"round is {round_}; allowed: 5 to 5"):
            again.resume(round_)


def one_more(all_reduce: ObjectStoreAllReduce, round_: int) -> bytes:
    return all_reduce.allreduce(move(all_reduce.rank, round_)).tobytes()


def test_a_late_replica_gets_the_means_it_has_missed_and_is_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, min_participants=2)
    late, *others = [joined(run, rank) for rank in range(3)]
    all_left([partial(one_more, one, 1) for one in (late, *others)])
    means = all_left([partial(one_more, one, 2) for one in others])
    assert run.commit(2).absent == (0,)
    # What it passes for the round that the others have made without it is not used.
    assert one_more(late, 2) == means[0] == means[1]
    # From now on, not only when it contributes: it needs the time to train.
    assert (run.root / keys.claim(0, 2)).exists()
    assert len(set(all_left([partial(one_more, one, 3) for one in (late, *others)]))) == 1
    assert [member.rank for member in run.commit(3).members] == [0, 1, 2]


def test_arrays_of_many_shapes_and_types_are_one_round(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)

    def work(one: ObjectStoreAllReduce) -> bytes:
        whole = np.arange(6, dtype=np.float64).reshape(2, 3)
        found = one.allreduce(
            {"b": [(whole + one.rank).T, (np.full((), one.rank, np.float32),)], "a": np.ones(2, "f2")}
        )
        assert (found["b"][0] == whole.T + 0.5).all()
        assert (found["b"][0].dtype, found["a"].dtype, found["b"][1][0]) == (np.float64, np.float16, 0.5)
        return b""

    all_left([partial(work, joined(run, rank)) for rank in range(2)])
    assert run.commit(1).count == 9


def test_what_cannot_be_averaged_is_named_with_what_is_allowed(tmp_path: Path) -> None:
    one = joined(Run(tmp_path, replicas=1, min_participants=1), 0)
    refused: list[tuple[Any, str]] = [
        (np.arange(3), "values is int64"),
        ([1.5, np.zeros(2)], r"values\[0\] is of type float"),
        ({"w": np.broadcast_to(np.float32(1), (3,))}, r"values\['w'\] is read-only"),
        (np.zeros(0), "values holds no element"),
    ]
    for values, problem in refused:
        with pytest.raises(ParametersError, match=f"{problem}.*; allowed: NumPy arrays and"):
            one.allreduce(values)
    assert one.round == 0


def test_not_a_number_of_one_replica_never_reaches_the_others(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=1)
    sound, broken = (joined(run, rank) for rank in range(2))
    work = [lambda: sound.allreduce(np.ones(3)).tobytes(), lambda: broken.allreduce(np.full(3, np.nan)).tobytes()]
    assert set(all_left(work)) == {np.ones(3).tobytes()}
    alone = joined(Run(tmp_path / "alone", replicas=1, min_participants=1), 0)
    with pytest.raises(DivergedError, match="its pseudo-gradient cannot be averaged"):
        alone.allreduce(np.full(3, np.nan))


def test_calls_of_another_size_or_another_algorithm_are_errors(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    joined(run, 0).allreduce(np.ones(3))
    with pytest.raises(ParametersError, match=r"The all-reduce number 1 has 4 elements here and 3 in the run"):
        joined(run, 0, attempt=2).allreduce(np.ones(4))
    with pytest.raises(AlgorithmError, match="algorithm is not set here and all-reduce in the run"):
        DiLoCo(Rendezvous.open(run.context(), 0, 3, Metrics()), np.zeros(3, np.float32))


def test_a_void_round_has_no_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = joined(Run(tmp_path, replicas=1, min_participants=1), 0)
    made = Rendezvous.exchange

    def void(rendezvous: Rendezvous, round_: int, update: LocalUpdate) -> Exchange:
        exchange = made(rendezvous, round_, update)
        return replace(exchange, commit=exchange.commit.model_copy(update={"void": True}))

    monkeypatch.setattr(Rendezvous, "exchange", void)
    values = np.ones(3)
    with pytest.raises(DivergedError, match="number 1 has no mean"):
        one.allreduce(values)
    assert (values == 1).all()


def test_means_that_were_deleted_are_no_reason_to_begin_anew(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    first = joined(run, 0)
    for _ in range(2):
        first.allreduce(np.ones(3))
    for path in (tmp_path / "reduced").rglob("00000001-*"):
        path.unlink()
    with pytest.raises(HistoryGoneError, match="The contributions to round 1 have been deleted"):
        joined(run, 0, attempt=2).allreduce(np.ones(3))


def test_a_process_that_is_stopped_superseded_or_at_the_end_of_the_run_makes_no_further_call(tmp_path: Path) -> None:
    stop = threading.Event()
    run = Run(tmp_path, replicas=1, min_participants=1)
    one = joined(run, 0, stop=stop)
    one.allreduce(np.ones(3))
    stop.set()
    with pytest.raises(StoppedError):
        one.allreduce(np.ones(3))
    old = joined(run, 0, attempt=2)
    joined(run, 0, attempt=3)
    with pytest.raises(FencedError):
        old.resume(1) or old.allreduce(np.ones(3))

    ending = Run(tmp_path / "ending", replicas=2, min_participants=2, on_early_finish=OnEarlyFinish.STOP)
    first, second = (joined(ending, rank) for rank in range(2))
    all_left([partial(one_more, first, 1), partial(one_more, second, 1)])
    first._rounds.rendezvous.leaves_no_model()
    first._rounds.rendezvous.returned("its trainer returned")
    one_more(second, 2)
    with pytest.raises(RunEndedError, match="replica 0 finished in round 1"):
        one_more(second, 3)


def test_only_the_first_process_of_a_replica_exchanges(tmp_path: Path) -> None:
    context = replace(Run(tmp_path, replicas=1, min_participants=1).context(), group=InnerGroup(rank=1, size=2))
    second = ObjectStoreAllReduce.of_process(OwnRounds(Rendezvous(context, Claim(0, 1, 1, 1), Metrics())))
    with pytest.raises(ParametersError, match="ObjectStoreAllReduce exchanges all parameters from one process"):
        second.allreduce(np.ones(3))


def test_the_object_is_that_of_the_processs_run(tmp_path: Path) -> None:
    with pytest.raises(ParametersError, match="launch it with MusterExecutor and rendezvous_uri"):
        ObjectStoreAllReduce("s3://bucket/prefix", 0, 2)
    one = joined(Run(tmp_path, replicas=2), 1)
    uri = one._rounds.uri
    same = ObjectStoreAllReduce(f"{uri}/", 1, 2)
    assert (same.rank, same.world_size, uri) == (1, 2, (tmp_path / "trainer").as_uri())
    with pytest.raises(ParametersError, match=r"rendezvous_uri is 's3://b'; allowed: 'file:.*; rank is 0; allowed: 1"):
        ObjectStoreAllReduce("s3://b", 0, 2)
