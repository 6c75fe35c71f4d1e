"""Trainers with a loop and all-reduce of their own: how they are called, and their rounds through reruns."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.run_document import RunDocument
from muster.contract.spec.hook import OWN_LOOP, own_loop_kwargs
from muster.contract.spec.policies import OnEarlyFinish
from muster.options.executor.replica.all_reduce import ObjectStoreAllReduce, OwnRounds
from muster.options.executor.replica.trainer_call import arguments_of, set_environment
from muster.replica.entry.trainer import call_trainer, load_trainer
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.board import InnerGroup
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import (
    AlgorithmError,
    DivergedError,
    FencedError,
    HistoryGoneError,
    InputError,
    ParametersError,
    RunEndedError,
    StoppedError,
    TrainerError,
)
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.round import Rounds
from muster.replica.rounds.round_context import Stops
from muster.replica.rounds.seat import Seat
from muster.replica.statistics.metrics import Metrics
from muster.replica.statistics.statistics import Statistics
from muster.replica.wire import rendezvous_keys
from tests.support.contexts import context_of
from tests.support.peers import Faults, FaultyStore, Killed, Run, kill_at, missing_only_in
from tests.support.rendezvous_keys import is_like, of_round


def document_of(kwargs: dict[str, Any], replicas: int = 1, trainer: str = "m:train") -> RunDocument:
    usual: dict[str, Any] = {"run": "r", "plan_digest": "", "rendezvous_uri": "", "min_participants": 1}
    return RunDocument(**usual, replicas=replicas, trainer=trainer, kwargs=kwargs, grace_seconds=0, timeout_seconds=1)


# --- Trainers that bring their own loop: what they are called with, and what they find in the environment -----------


JOB = "tests.support.jobs.own_loop"
OFFERED: dict[str, object] = dict.fromkeys(("context", "rank", "world_size", "rendezvous_uri", "allreduce"), "given")


@pytest.fixture(autouse=True)
def as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment, the trainer's module and the process's run are afterwards as they were."""
    for name in ("REPLICA_RANK", "WORLD_SIZE", "RENDEZVOUS_URI", "RANK"):
        monkeypatch.setenv(name, "7")
    yield
    ObjectStoreAllReduce._process = None
    sys.modules.pop(JOB, None)


def call(function: str, run: Run, **kwargs: Any) -> str:
    """Call a trainer of the job as a replica's process does."""
    own, context = own_loop_kwargs(f"{JOB}:{function}", kwargs), context_of(run)
    how = call_trainer(load_trainer(OWN_LOOP, own), context, document_of(own, run.replicas, OWN_LOOP))
    context.rendezvous.departure.returned(how)
    assert context.rendezvous.departure.has_left
    return how


def both(rank: int, *, lr: float) -> object: ...
def by_environment() -> object: ...
def of_muster(ctx: object, *, lr: float) -> object: ...
def all_of_them(rank: int, world_size: int, rendezvous_uri: str, allreduce: object, lr: float = 0.0) -> object: ...
def any_other(**settings: object) -> object: ...


def test_a_trainer_gets_its_own_arguments_and_what_its_parameters_name() -> None:
    by_name = {name: given for name, given in OFFERED.items() if name != "context"}
    rows: list[tuple[Callable[..., object], dict[str, object], list[object], dict[str, object]]] = [
        (both, {"lr": 0.1}, [], {"rank": "given", "lr": 0.1}),
        (by_environment, {}, [], {}),
        (of_muster, {"lr": 0.1}, ["given"], {"lr": 0.1}),
        (all_of_them, {"rank": 3}, [], {**by_name, "rank": 3}),
        # What a function of any arguments does with them is not known: it gets its own alone.
        (any_other, {"lr": 0.1}, [], {"lr": 0.1}),
    ]
    for function, kwargs, positional, named in rows:
        assert arguments_of("m:train", function, kwargs, OFFERED) == (positional, named)
        function(*positional, **named)
    with pytest.raises(InputError, match=r"the trainer m:train does not take these arguments: .*'lr'; by name it can"):
        arguments_of("m:train", both, {"rate": 1}, OFFERED)


def test_a_former_trainer_runs_unchanged_and_reads_its_place_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.alone(tmp_path / "run", on_early_finish=OnEarlyFinish.CONTINUE)
    assert call("train", run, rounds=3, model_dir=str(tmp_path)) == "its trainer returned"
    printed = capsys.readouterr().out
    assert f"[trainer] rank 0 of 1 at {(tmp_path / 'run' / 'trainer').as_uri()}" in printed
    job = sys.modules[JOB]
    assert (tmp_path / "weights.npy").read_bytes().endswith(job.expected(3, 1))
    # The others do not wait for a replica that has finished.
    assert (tmp_path / "run" / "claims" / "00000" / "000002.json").exists()


def test_errors_and_exits_are_those_of_the_users_function(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    with pytest.raises(TrainerError, match=rf"^{JOB}:fail failed: \S+own_loop\.py:\d+: ValueError: round 4 of rank 0"):
        call("fail", run, rounds=4)
    with pytest.raises(TrainerError, match=f"^{JOB}:leave exited: 3"):
        call("leave", run, code=3)
    with pytest.raises(InputError, match=f"the trainer {JOB}:missing cannot be imported"):
        call("missing", run)
    # It need not make any call.
    assert call("leave", run, code=0) == "its trainer called sys.exit(0)"


def test_the_variables_are_those_of_the_former_entrypoint_and_none_of_torchs(tmp_path: Path) -> None:
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "PATH": "/bin"}
    set_environment(variables, context_of(Run(tmp_path), 2), "s3://bucket/rendezvous/r/trainer")
    assert variables == {
        "PATH": "/bin",
        "REPLICA_RANK": "2",
        "WORLD_SIZE": "3",
        "RENDEZVOUS_URI": "s3://bucket/rendezvous/r/trainer",
    }


# --- Trainers that bring their own loop: the all-reduce over the rendezvous, through reruns and late replicas ---------


COUNT = 50


def joined(run: Run, rank: int, attempt: int = 1, faults: Faults | None = None, **context: Any) -> ObjectStoreAllReduce:
    """The all-reduce of one process of a replica."""
    rendezvous = run.open(rank, attempt, store=FaultyStore(run.store, faults or Faults()), **context)
    return ObjectStoreAllReduce.of_process(OwnRounds(rendezvous))


def move(rank: int, round_: int) -> np.ndarray[Any, Any]:
    """What the local training of a replica changes."""
    return np.random.default_rng((rank, round_)).standard_normal(COUNT).astype(np.float32)


def loop(all_reduce: ObjectStoreAllReduce, rounds: int = 4, local: list[int] | None = None) -> bytes:
    """A trainer's own loop; the bytes of its parameters. `local` collects the rounds for which it has trained."""
    parameters = np.zeros(COUNT, np.float32)
    for round_ in range(1, rounds + 1):
        difference = np.zeros(COUNT, np.float32)
        if local is None or not all_reduce.behind:
            difference = move(all_reduce.rank, round_)
            if local is not None:
                local.append(round_)
        assert all_reduce.allreduce(difference) is difference
        parameters -= difference
    return parameters.tobytes()


def undisturbed(replicas: int = 3, rounds: int = 4) -> bytes:
    """What `loop` leaves, in plain NumPy."""
    parameters = np.zeros(COUNT, np.float32)
    for round_ in range(1, rounds + 1):
        first, *others = (move(rank, round_) for rank in range(replicas))
        parameters -= sum(others, first) * np.float32(1 / replicas)
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
        (of_round(rendezvous_keys.CONTRIBUTIONS, 3), "before"),
        (of_round(rendezvous_keys.CONTRIBUTIONS, 3), "after"),
        ("commits/00000003", "after"),
        (of_round(rendezvous_keys.REDUCED, 3), "before"),
        (of_round(rendezvous_keys.REDUCED, 3), "after"),
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
    assert not again._rounds.rendezvous.seat.claim.loads, "the others do not wait for it"
    metrics = again._rounds.rendezvous.statistics.metrics
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
    assert (run.root / rendezvous_keys.claim(0, 2)).exists()
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
    one = joined(Run.alone(tmp_path), 0)
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
    alone = joined(Run.alone(tmp_path / "alone"), 0)
    with pytest.raises(DivergedError, match="its pseudo-gradient cannot be averaged"):
        alone.allreduce(np.full(3, np.nan))


def test_calls_of_another_size_or_another_algorithm_are_errors(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    joined(run, 0).allreduce(np.ones(3))
    with pytest.raises(ParametersError, match=r"The all-reduce number 1 has 4 elements here and 3 in the run"):
        joined(run, 0, attempt=2).allreduce(np.ones(4))
    with pytest.raises(AlgorithmError, match="algorithm is not set here and all-reduce in the run"):
        DiLoCo(run.open(attempt=3), np.zeros(3, np.float32))


def test_a_void_round_has_no_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = joined(Run.alone(tmp_path), 0)
    made = Rounds.exchange

    def void(rounds: Rounds, round_: int, update: LocalUpdate) -> Exchange:
        exchange = made(rounds, round_, update)
        return replace(exchange, commit=exchange.commit.model_copy(update={"void": True}))

    monkeypatch.setattr(Rounds, "exchange", void)
    values = np.ones(3)
    with pytest.raises(DivergedError, match="number 1 has no mean"):
        one.allreduce(values)
    assert (values == 1).all()


def test_means_that_were_deleted_are_no_reason_to_begin_anew(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    first = joined(run, 0)
    for _ in range(2):
        first.allreduce(np.ones(3))
    for path in (tmp_path / "reduced").rglob("00000001-*"):
        path.unlink()
    with pytest.raises(HistoryGoneError, match="The contributions to round 1 have been deleted"):
        joined(run, 0, attempt=2).allreduce(np.ones(3))


def test_a_process_that_is_stopped_superseded_or_at_the_end_of_the_run_makes_no_further_call(tmp_path: Path) -> None:
    stop = threading.Event()
    run = Run.alone(tmp_path)
    one = joined(run, 0, stops=Stops(stop))
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
    first._rounds.rendezvous.departure.leaves_no_model()
    first._rounds.rendezvous.departure.returned("its trainer returned")
    one_more(second, 2)
    with pytest.raises(RunEndedError, match="replica 0 finished in round 1"):
        one_more(second, 3)


def test_only_the_first_process_of_a_replica_exchanges(tmp_path: Path) -> None:
    context = replace(Run.alone(tmp_path).context(), group=InnerGroup(rank=1, size=2))
    rounds = Rounds(context, Seat(context, Claim(0, 1, 1, 1)), Statistics(Metrics()))
    second = ObjectStoreAllReduce.of_process(OwnRounds(Rendezvous(rounds)))
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
