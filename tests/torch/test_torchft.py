"""torchft's own algorithms, unmodified, over our rendezvous, also after replicas have ended."""

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchft.local_sgd", reason="make test installs it")

import torch
from torchft import local_sgd

from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.replica_errors import AlgorithmError, RendezvousError, RunEndedError
from muster.replica.rounds.round_context import Stops
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Store
from muster.replica.wire import rendezvous_keys
from muster.torch import Algorithm, DiLoCo, LocalSGD
from muster.torchft import Manager
from tests.support.peers import Faults, FaultyStore, Run, together
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
    for folder in (rendezvous_keys.CONTRIBUTIONS, rendezvous_keys.REDUCED, rendezvous_keys.TORCHFT):
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
    run = Run.alone(tmp_path)

    def begin(attempt: int, **settings: Any) -> tuple[Any, Manager, Any]:
        model = model_of()
        manager = Manager(run.open(attempt=attempt), model, **settings)
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
        DiLoCo(run.open(attempt=4), model, inner, Algorithm())

    run = Run.alone(tmp_path / "averaging")
    model, manager, inner = begin(1, codec="int8")
    with (
        local_sgd.LocalSGD(manager, model, inner, sync_every=SYNC_EVERY),
        pytest.raises(AlgorithmError, match="LocalSGD exchanges the parameters themselves"),
    ):
        inner_steps(model, inner, 0, 1)


def test_fragments_that_are_not_the_managers_are_refused(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    model = model_of()
    manager = Manager(run.open(), model)
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
    run = Run.alone(tmp_path / "run", on_early_finish=OnEarlyFinish.STOP)
    stop, results = threading.Event(), tmp_path / "results"

    def train(attempt: int, rounds: int, hook: Callable[[int], None]) -> None:
        train_with_torchft(
            run.open(attempt=attempt, outside=Outside(results=LocalStore(results)), stops=Stops(stop)), rounds, hook
        )

    train(1, 2, lambda round_: stop.set() if round_ == 3 else None)
    assert not run.store.exists(rendezvous_keys.claim(0, 2))  # the rank is not given up
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
        training = rendezvous.departure.training
        assert training is not None
        rendezvous.departure.finish("its trainer returned")
        result = training.packing.read().tobytes()
        assert result == training.state.parameters.tobytes()
        assert (model is None) is (rendezvous.rank == 0)
        return training.state.round, result

    (longer, ours), (shorter, theirs) = together(run, replica)
    assert (longer, shorter) == (4, 3)
    assert ours != theirs
    # A rerun loads the state of the last round, and does not replay it.
    assert replica(run.open(attempt=2)) == (4, ours)
    assert [member.rank for member in run.commit(4).members] == [0]


# --- After replicas have ended, what is stored of a run is enough to go on --------------------------------------------


SECONDS_MAX = 20.0  # a replica that waits in vain fails then
ROUNDS = 7


class EndedError(Exception):
    """The process ends here."""


def ends_before(round_: int, *ranks: int) -> Callable[[Rendezvous], Callable[[int], None]]:
    """A hook that ends the processes of `ranks`, of all without any, before the inner steps of `round_`."""

    def of(rendezvous: Rendezvous) -> Callable[[int], None]:
        def hook(next_: int) -> None:
            if next_ == round_ and rendezvous.rank in (ranks or range(rendezvous.world_size)):
                raise EndedError

        return hook

    return of


def train_to_the_end(rendezvous: Rendezvous, **options: Any) -> bytes:
    return state_of(train_with_torchft(rendezvous, ROUNDS, **options))


def test_a_run_whose_members_all_end_before_their_next_step_resumes(tmp_path: Path) -> None:
    for codec in ("fp32", "int4"):
        calm = Run(tmp_path / codec, replicas=2, min_participants=2)
        undisturbed = together(calm, partial(train_to_the_end, settings={"codec": codec}))
        for round_ in (1, 4):
            root = tmp_path / f"{codec}-{round_}"
            run = Run(root, replicas=2, min_participants=2, timeout_seconds=SECONDS_MAX)

            def kept(rendezvous: Rendezvous, root: Path = root, codec: str = codec) -> dict[str, Any]:
                # What its codec lost comes back with it.
                return {"codec": codec, "checkpoint_dir": root / f"checkpoints-{rendezvous.rank}"}

            def first(rendezvous: Rendezvous, round_: int = round_, kept: Any = kept) -> None:
                with suppress(EndedError):
                    hook = ends_before(round_ + 1)(rendezvous)
                    train_with_torchft(rendezvous, ROUNDS, hook, settings=kept(rendezvous))

            def again(rendezvous: Rendezvous, kept: Any = kept) -> bytes:
                return train_to_the_end(rendezvous, settings=kept(rendezvous))

            together(run, first)
            assert run.store.exists(rendezvous_keys.commit(round_)), (codec, round_)
            assert not run.store.exists(rendezvous_keys.torchft_state(round_)), (codec, round_)
            assert together(run, again, attempt=2) == undisturbed, (codec, round_)


def test_the_last_rounds_keeper_ends_before_it_has_stored_the_state_and_its_rerun_succeeds(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=3, min_participants=3, timeout_seconds=SECONDS_MAX)
    keeper = ROUNDS % 3

    def work(rendezvous: Rendezvous) -> bytes | None:
        with suppress(EndedError):
            return train_to_the_end(rendezvous, hook=ends_before(ROUNDS + 1, keeper)(rendezvous))
        return None

    models = together(run, work)
    assert [rank for rank, model in enumerate(models) if model is None] == [keeper]
    assert not run.store.exists(rendezvous_keys.torchft_state(ROUNDS))
    rerun = train_to_the_end(run.open(keeper, 2))
    assert {rerun} == {model for model in models if model is not None}


def test_a_round_of_local_sgd_is_applied_before_the_first_inner_step(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, timeout_seconds=SECONDS_MAX)
    # Whoever joins after the other's first step finds the state that it has stored, and has nothing to apply.
    both = threading.Barrier(2)

    def work(last: int, rendezvous: Rendezvous) -> tuple[bytes, int]:
        steps = 0
        model = model_of()
        manager = Manager(rendezvous, model)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with local_sgd.LocalSGD(manager, model, inner, sync_every=SYNC_EVERY):
            both.wait(SECONDS_MAX)
            while manager.round < last:
                model(torch.ones(1, 5) * (rendezvous.rank + 1)).square().mean().backward()
                inner.step()
                steps += 1
        # No shutdown: the process ends between the commit and its next step.
        return state_of(model), steps

    ended = together(run, partial(work, 1))
    assert [steps for _, steps in ended] == [SYNC_EVERY] * 2
    assert not run.store.exists(rendezvous_keys.torchft_state(1))
    # Their first step applies the round, and nothing else.
    assert together(run, partial(work, 1), attempt=2) == [(state, 1) for state, _ in ended]
    assert len({state for state, _ in together(run, partial(work, 3), attempt=3)}) == 1


class Damaged(Run):
    """A run in which the contribution of rank 1 to round 2 is damaged in the bucket: no quorum is left there."""

    @property
    def store(self) -> Store:
        def damage(key: str, body: bytes) -> bytes:
            return body[:-1] + bytes([body[-1] ^ 1]) if key == rendezvous_keys.contribution(2, 1, 1) else body

        return FaultyStore(super().store, Faults(rewrite=damage))


def after_each_round(rendezvous: Rendezvous, last: int, *, averages: bool) -> dict[int, list[bytes]]:
    """The state after each round up to `last` with torchft's LocalSGD (`averages`) or its DiLoCo."""
    model = model_of()
    manager = Manager(rendezvous, model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    algorithm: Any = (
        local_sgd.LocalSGD(manager, model, inner, sync_every=SYNC_EVERY)
        if averages
        else local_sgd.DiLoCo(manager, [model], inner, outer_of(model), sync_every=SYNC_EVERY)
    )
    states = {}

    def note() -> None:
        states[manager.round] = [state_of(model), *([] if averages else shared_of(algorithm))]

    with algorithm:
        # As the first inner step: LocalSGD then applies the rounds that its state lacks.
        manager.disallow_state_dict_read()
        note()
        while manager.round < last:
            inner_steps(model, inner, rendezvous.rank, manager.round + 1)
            note()
    # No shutdown: the process ends between the commit and its next step.
    return states


def test_a_void_round_changes_nothing(tmp_path: Path) -> None:
    for name, averages in {"DiLoCo": False, "LocalSGD": True}.items():
        run = Damaged(tmp_path / name, replicas=2, min_participants=2, timeout_seconds=SECONDS_MAX)
        ended, other = together(run, partial(after_each_round, last=2, averages=averages))
        assert run.commit(2, 1).void, name
        assert ended == other, name
        assert ended[2] == ended[1] != ended[0], name
        assert not run.store.exists(rendezvous_keys.torchft_state(2)), name
        # Their reruns replay it, and train on.
        rerun, other = together(run, partial(after_each_round, last=3, averages=averages), attempt=2)
        assert rerun == other, name
        assert rerun[3] != rerun[2] == ended[2], name
        assert not run.commit(3).excluded, name


def shared_of(algorithm: Any) -> list[bytes]:
    """The global parameters of all fragments, and their outer optimizers' states."""
    found = []
    for fragment in algorithm._fragments:
        found += [tensor.float().numpy().tobytes() for tensor in fragment.original_parameters.values()]
        state = fragment._outer_optimizer.state_dict()["state"]
        found += [entry["momentum_buffer"].float().numpy().tobytes() for entry in state.values()]
    return found


def streaming(rendezvous: Rendezvous, dtype: Any = torch.float32, **options: Any) -> tuple[Any, Manager, Any, Any]:
    """torchft's DiLoCo with a fragment for each layer."""
    model = model_of().to(dtype)
    fragments = [model[0], model[2]]
    manager = Manager(rendezvous, model, fragments)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    outers = [outer_of(part) for part in fragments]
    algorithm = local_sgd.DiLoCo(manager, fragments, inner, outers, sync_every=2 * SYNC_EVERY, **options)
    return model, manager, inner, algorithm


def test_the_rounds_of_each_fragment_are_replayed(tmp_path: Path) -> None:
    def work(rendezvous: Rendezvous, *, last: int, options: dict[str, Any]) -> list[bytes]:
        model, manager, inner, algorithm = streaming(rendezvous, **options)
        with algorithm:
            while manager.round < last:
                inner_steps(model, inner, rendezvous.rank, manager.round + 1)
        return shared_of(algorithm)

    def joined(rendezvous: Rendezvous, *, last: int, options: dict[str, Any]) -> list[bytes]:
        model, manager, _, algorithm = streaming(rendezvous, **options)
        assert manager.round == last
        # Training begins at the global parameters, which are not mixed with older ones.
        for module, part in zip((model[0], model[2]), algorithm._fragments, strict=True):
            for name, parameter in module.named_parameters():
                assert torch.equal(parameter, part.original_parameters[name])
        return shared_of(algorithm)

    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "buckets": {"use_bucketization": True},
        "mixed": {"fragment_sync_delay": 2, "fragment_update_alpha": 0.5},
        "bfloat16": {"dtype": torch.bfloat16},
    }
    for (name, options), last in product(kinds.items(), (1, 2, 3)):
        run = Run(tmp_path / f"{name}-{last}", replicas=2, min_participants=2, timeout_seconds=SECONDS_MAX)
        ended = together(run, partial(work, last=last, options=options))
        assert ended[0] == ended[1], (name, last)
        assert not run.store.exists(rendezvous_keys.torchft_state(last)), (name, last)
        assert together(run, partial(joined, last=last, options=options), attempt=2) == ended, (name, last)
        # Nothing was stored meanwhile: the next step would have.
        assert not run.store.exists(rendezvous_keys.torchft_state(last)), (name, last)


def test_a_replica_that_joins_between_two_fragments_counts_for_what_it_has_trained(tmp_path: Path) -> None:
    """torchft's own manager copies the trained parameters of a peer to one that joins, and then counts both in full."""

    def work(rendezvous: Rendezvous, *, run: Run, samples: int | None, ends: bool) -> None:
        model, manager, inner, algorithm = streaming(rendezvous)

        def count() -> None:
            if samples is not None:
                manager.add_samples(samples)

        count()
        with algorithm:
            while manager.round < 4:
                if ends and rendezvous.rank == 1 and manager.round == 1:
                    # Between its two fragments.
                    rerun = run.open(1, 2)
                    work(rerun, run=run, samples=samples, ends=False)
                    return
                inner_steps(model, inner, rendezvous.rank, manager.round + 1, count)

    weights: dict[int | None, list[float]] = {None: [8.0, 4.0], 3: [24.0, 12.0]}
    for samples, expected in weights.items():
        run = Run(tmp_path / str(samples), replicas=2, min_participants=2, timeout_seconds=SECONDS_MAX)
        together(run, partial(work, run=run, samples=samples, ends=True))
        given = [[member.weight for member in run.commit(round_).members] for round_ in range(1, 5)]
        assert given[1] == expected, samples
        assert given[2][0] == given[2][1], samples


def test_a_torchft_whose_fragments_cannot_sync_again_is_refused(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    manager = Manager(run.open(), model_of())
    with pytest.raises(AlgorithmError, match=r"registered StreamingDiLoCoFragment_0 .* allowed: the DiLoCo of torchft"):
        manager.register_state_dict_fn("StreamingDiLoCoFragment_0", lambda _: None, dict)


def test_a_run_whose_states_are_gone_is_refused_at_once(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    train_with_torchft(run.open(), 2)
    run.store.delete([rendezvous_keys.torchft_state(round_) for round_ in range(3)])
    with pytest.raises(
        RendezvousError, match=r"Round 2 is committed, but neither .*00000002 nor the state of the round"
    ):
        train_with_torchft(run.open(attempt=2), 3)
