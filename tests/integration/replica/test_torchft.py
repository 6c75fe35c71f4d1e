"""torchft's own algorithms, unmodified, over our rendezvous."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchft.local_sgd", reason="make test installs it")

import torch
from torchft import local_sgd

from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.errors import AlgorithmError, RunEndedError, StoppedError
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.local_store import LocalStore
from muster.replica.wire import keys
from muster.torch import Algorithm, DiLoCo, LocalSGD
from muster.torchft import Manager
from tests.support.peers import Run, missing_only_in, run_all, together
from tests.support.torchft_training import SYNC_EVERY, inner_steps, model_of, outer_of, state_of, train_with_torchft
from tests.support.waiting import wait_until


def test_arguments_come_in_torchfts_order() -> None:
    def names(function: Callable[..., object]) -> list[str]:
        return list(inspect.signature(function).parameters)

    # The algorithm holds what torchft's outer optimizer and sync_every do.
    assert names(DiLoCo)[:4] == ["rendezvous", "model", "inner_optimizer", "algorithm"]
    assert names(local_sgd.DiLoCo)[:5] == [
        "manager", "model_fragments", "inner_optimizer", "outer_optimizer", "sync_every"
    ]  # fmt: skip
    assert names(LocalSGD)[1:4] == names(local_sgd.LocalSGD)[1:4] == ["model", "optimizer", "sync_every"]
    assert names(Manager)[:3] == ["rendezvous", "model", "fragments"]


def test_torchfts_diloco_gives_what_ours_gives_with_one_exchange_per_sync(tmp_path: Path) -> None:
    run = Run(tmp_path / "torchft", replicas=3)
    models = together(run, lambda rendezvous: train_with_torchft(rendezvous, rounds=5))
    assert len({state_of(model) for model in models}) == 1
    for round_ in range(1, 6):
        assert len(run.commit(round_).members) == 3
        assert run.commit(round_).count == 6 * 5 + 6 + 3 * 6 + 3

    def ours(rendezvous: Rendezvous) -> Any:
        model = model_of()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        outer = DiLoCo(rendezvous, model, inner, Algorithm(sync_every=SYNC_EVERY))
        while outer.round < 5:
            inner_steps(model, inner, rendezvous.rank, outer.round + 1, outer.step)
        return model

    other = together(Run(tmp_path / "ours", replicas=3), ours)[0]
    for one, another in zip(models[0].parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-6)


def rounds_of(run: Run, folder: str) -> set[int]:
    return {int(path.name[:8]) for path in (run.root / folder).rglob("0*") if path.is_file()}


def test_what_a_newer_state_covers_is_deleted(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    together(run, lambda rendezvous: train_with_torchft(rendezvous, rounds=6))
    # The data of the last round, and the states before and after it. What was stored or read while a sweep went by
    # is taken along by the next one.
    for folder in (keys.CONTRIBUTIONS, keys.REDUCED, keys.TORCHFT):
        assert 6 in rounds_of(run, folder)
        assert rounds_of(run, folder) <= {4, 5, 6}


def test_a_replica_that_slept_until_its_round_was_deleted_continues_from_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, replicas=3, min_participants=2)

    def work(rendezvous: Rendezvous) -> Any:
        def after(round_: int) -> None:
            if rendezvous.rank == 2 and round_ == 2:
                wait_until("the commit of round 5", lambda: run.store.exists(keys.commit(5)))
            elif round_ == 8:
                # Reported back: it is waited for from now on.
                wait_until("the claim of the new attempt", lambda: run.store.exists(keys.claim(2, 2)))

        return train_with_torchft(rendezvous, 10, after=after)

    models = together(run, work)
    assert len({state_of(model) for model in models}) == 1
    assert [member.rank for member in run.commit(2).members] == [0, 1]
    assert [member.rank for member in run.commit(10).members] == [0, 1, 2]


@pytest.mark.parametrize(("codec", "distance"), [("int8", 0.02), ("int4", 0.2)])
def test_any_codec_comes_near_to_fp32(tmp_path: Path, codec: str, distance: float) -> None:
    def work(rendezvous: Rendezvous) -> Any:
        return train_with_torchft(rendezvous, 12, settings={"codec": codec}, should_quantize=True)

    run = Run(tmp_path / codec, replicas=2, min_participants=2)
    coded = together(run, work)
    assert state_of(coded[0]) == state_of(coded[1])
    exact = together(
        Run(tmp_path / "fp32", replicas=2, min_participants=2), lambda rendezvous: train_with_torchft(rendezvous, 12)
    )
    begun, one, another = (
        torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        for model in (model_of(), coded[0], exact[0])
    )
    assert 0 < (one - another).norm() < distance * (another - begun).norm()


def test_what_should_not_be_coded_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)

    def begin(attempt: int, **settings: Any) -> tuple[Any, Manager, Any]:
        model = model_of()
        manager = Manager(Rendezvous.open(run.context(), 0, attempt, Metrics()), model, **settings)
        return model, manager, torch.optim.SGD(model.parameters(), lr=0.1)

    with pytest.raises(AlgorithmError, match="codec is 'int5'; allowed: fp32, bf16"):
        begin(1, codec="int5")
    model, manager, inner = begin(2)
    with (
        local_sgd.DiLoCo(manager, [model], inner, outer_of(model), sync_every=SYNC_EVERY, should_quantize=True),
        pytest.raises(AlgorithmError, match=r"the codec is fp32: set another, such as codec='int8'"),
    ):
        inner_steps(model, inner, 0, 1)
    # The first replica decides the run's codec and algorithm.
    with pytest.raises(AlgorithmError, match="codec is int8/1 here and fp32/1 in the run"):
        begin(3, codec="int8")
    with pytest.raises(AlgorithmError, match="algorithm is not set here and torchft in the run"):
        DiLoCo(Rendezvous.open(run.context(), 0, 4, Metrics()), model, inner, Algorithm())

    run = Run(tmp_path / "averaging", replicas=1, min_participants=1)
    model, manager, inner = begin(1, codec="int8")
    with (
        local_sgd.LocalSGD(manager, model, inner, sync_every=SYNC_EVERY),
        pytest.raises(AlgorithmError, match="LocalSGD exchanges the parameters themselves"),
    ):
        inner_steps(model, inner, 0, 1)


def test_fragments_that_are_not_the_managers_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    model = model_of()
    manager = Manager(Rendezvous.open(run.context(), 0, 1, Metrics()), model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    algorithm = local_sgd.DiLoCo(manager, [model[0]], inner, outer_of(model[0]), sync_every=SYNC_EVERY)
    with algorithm, pytest.raises(AlgorithmError, match="exchanges 36 values, but the manager's fragment has 57"):
        inner_steps(model, inner, 0, 1)


def test_buckets_and_utilisation(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    metrics = Metrics()
    rendezvous = Rendezvous.open(run.context(), 0, 1, metrics)
    bucketed = train_with_torchft(rendezvous, 3, use_bucketization=True)
    assert 0 < metrics.latest()["utilisation"] < 1
    plain = Run(tmp_path / "plain", replicas=1, min_participants=1)
    alone = train_with_torchft(Rendezvous.open(plain.context(), 0, 1, Metrics()), 3)
    assert state_of(bucketed) == state_of(alone)


# With samples 1, 2, 3: (0 * 1 + 3 * 2 + 6 * 3) / 6.
@pytest.mark.parametrize(("weighted", "mean"), [(False, 3.0), (True, 4.0)])
def test_torchfts_local_sgd_averages(tmp_path: Path, weighted: bool, mean: float) -> None:
    def work(rendezvous: Rendezvous) -> Any:
        model = torch.nn.Linear(1, 1, bias=False)
        manager = Manager(rendezvous, model)
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        with local_sgd.LocalSGD(manager, model, inner, sync_every=1):
            model.weight.data.fill_(3.0 * rendezvous.rank)
            model.weight.grad = torch.zeros_like(model.weight)
            if weighted:
                manager.add_samples(1 + rendezvous.rank)
            inner.step()
        manager.shutdown()
        return model.weight.item()

    assert together(Run(tmp_path), work) == pytest.approx([mean] * 3)


def test_torchfts_streaming_fragments_overlap(tmp_path: Path) -> None:
    def work(rendezvous: Rendezvous) -> Any:
        model = model_of()
        fragments = [model[0], model[2]]
        manager = Manager(rendezvous, model, fragments)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        algorithm = local_sgd.DiLoCo(
            manager, fragments, inner, [outer_of(part) for part in fragments], sync_every=2 * SYNC_EVERY,
            fragment_sync_delay=2,
        )  # fmt: skip
        with algorithm:
            for round_ in range(1, 7):
                inner_steps(model, inner, rendezvous.rank, round_)
        manager.shutdown()
        return [fragment.original_parameters for fragment in algorithm._fragments]

    run = Run(tmp_path)
    results = together(run, work)
    for result in results[1:]:
        for part, other in zip(results[0], result, strict=True):
            assert {name: bytes(t.numpy().tobytes()) for name, t in part.items()} == {
                name: bytes(t.numpy().tobytes()) for name, t in other.items()
            }
    assert [run.commit(round_).count for round_ in (1, 2, 3)] == [36, 21, 36]


@pytest.mark.parametrize("codec", ["fp32", "int4"])
def test_a_replica_that_is_killed_comes_back_with_the_outer_optimizer_of_the_others(tmp_path: Path, codec: str) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    calm = Run(tmp_path / "undisturbed", replicas=2, min_participants=2)
    undisturbed = together(calm, lambda rendezvous: train_with_torchft(rendezvous, rounds=7, settings={"codec": codec}))
    models: list[Any] = []
    stop = threading.Event()

    def dies(round_: int) -> None:
        if round_ == 4:
            raise StoppedError

    def replica(rank: int, attempt: int, hook: Callable[[int], None]) -> None:
        rendezvous = Rendezvous.open(run.context(stop=stop), rank, attempt, Metrics())
        try:
            # What its codec lost comes back with it.
            kept = {"codec": codec, "checkpoint_dir": tmp_path / f"checkpoints-{rank}"}
            models.append(train_with_torchft(rendezvous, 7, hook, settings=kept))
        except StoppedError:
            replica(rank, attempt + 1, lambda _: None)

    threads = [threading.Thread(target=replica, args=(rank, 1, (dies, lambda _: None)[rank])) for rank in (0, 1)]
    run_all(threads)
    stop.set()
    assert [member.attempt for member in run.commit(4).members] == [2, 1]
    assert [state_of(model) for model in models] == [state_of(model) for model in undisturbed]


def test_a_replica_that_is_asked_to_stop_before_its_shutdown_stays_in_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1, on_early_finish=OnEarlyFinish.STOP)
    stop, results = threading.Event(), tmp_path / "results"

    def train(attempt: int, rounds: int, hook: Callable[[int], None]) -> None:
        context = replace(run.context(stop=stop), results=LocalStore(results))
        train_with_torchft(Rendezvous.open(context, 0, attempt, Metrics()), rounds, hook)

    train(1, 2, lambda round_: stop.set() if round_ == 3 else None)
    assert not run.store.exists(keys.claim(0, 2))  # the rank is not given up
    assert not results.exists()
    stop.clear()
    train(2, 3, lambda _: None)
    assert (results / "model-00000003.json").exists()


def test_a_run_that_ends_by_its_rule_leaves_the_model_of_the_last_round(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, timeout_seconds=30, on_early_finish=OnEarlyFinish.STOP)

    def replica(rendezvous: Rendezvous) -> tuple[int, bytes]:
        model: Any = None
        with suppress(RunEndedError):
            model = train_with_torchft(rendezvous, rounds=3 if rendezvous.rank else 9)
        training = rendezvous.training
        assert training is not None
        rendezvous.finish("its trainer returned")
        result = training.packing.read().tobytes()
        assert result == training.state.parameters.tobytes()
        assert (model is None) is (rendezvous.rank == 0)
        return training.state.round, result

    (longer, ours), (shorter, theirs) = together(run, replica)
    assert (longer, shorter) == (4, 3)
    assert ours != theirs
    # A rerun loads the state of the last round, and does not replay it.
    assert replica(Rendezvous.open(run.context(), 0, 2, Metrics())) == (4, ours)
    assert [member.rank for member in run.commit(4).members] == [0]
