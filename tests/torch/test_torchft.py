"""torchft's own algorithms, unmodified, over our rendezvous."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchft.local_sgd", reason="make test installs it")

import torch
from torchft import local_sgd

from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.errors import AlgorithmError, RunEndedError
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.local_store import LocalStore
from muster.replica.wire import keys
from muster.torch import Algorithm, DiLoCo, LocalSGD
from muster.torchft import Manager
from tests.support.peers import Run, together
from tests.support.torchft_training import SYNC_EVERY, inner_steps, model_of, outer_of, state_of, train_with_torchft


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


def flat(model: Any) -> Any:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_any_codec_comes_near_to_fp32(tmp_path: Path) -> None:
    def trained(name: str, **options: Any) -> Any:
        run = Run(tmp_path / name, replicas=2, min_participants=2)
        models = together(run, partial(train_with_torchft, rounds=12, **options))
        assert state_of(models[0]) == state_of(models[1])
        return flat(models[0])

    exact = trained("fp32")
    for codec, distance in {"int8": 0.02, "int4": 0.2}.items():
        coded = trained(codec, settings={"codec": codec}, should_quantize=True)
        assert 0 < (coded - exact).norm() < distance * (exact - flat(model_of())).norm(), codec


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


def test_torchfts_local_sgd_averages(tmp_path: Path) -> None:
    def work(rendezvous: Rendezvous, *, weighted: bool) -> Any:
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

    # With samples 1, 2, 3: (0 * 1 + 3 * 2 + 6 * 3) / 6.
    for weighted, mean in ((False, 3.0), (True, 4.0)):
        assert together(Run(tmp_path / str(weighted)), partial(work, weighted=weighted)) == pytest.approx([mean] * 3)


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
