"""torchft's algorithms after replicas have ended: what is stored of a run is enough to go on."""

from __future__ import annotations

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

from muster.replica.errors import AlgorithmError, RendezvousError
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.transport import Store
from muster.replica.wire import keys
from muster.torchft import Manager
from tests.support.peers import Faults, FaultyStore, Run, together
from tests.support.torchft_training import SYNC_EVERY, inner_steps, model_of, outer_of, state_of, train_with_torchft

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
            assert run.store.exists(keys.commit(round_)), (codec, round_)
            assert not run.store.exists(keys.torchft_state(round_)), (codec, round_)
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
    assert not run.store.exists(keys.torchft_state(ROUNDS))
    rerun = train_to_the_end(Rendezvous.open(run.context(), keeper, 2, Metrics()))
    assert {rerun} == {model for model in models if model is not None}


def test_a_round_of_local_sgd_is_applied_before_the_first_inner_step(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, timeout_seconds=SECONDS_MAX)

    def work(last: int, rendezvous: Rendezvous) -> tuple[bytes, int]:
        steps = 0
        model = model_of()
        manager = Manager(rendezvous, model)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with local_sgd.LocalSGD(manager, model, inner, sync_every=SYNC_EVERY):
            while manager.round < last:
                model(torch.ones(1, 5) * (rendezvous.rank + 1)).square().mean().backward()
                inner.step()
                steps += 1
        # No shutdown: the process ends between the commit and its next step.
        return state_of(model), steps

    ended = together(run, partial(work, 1))
    assert [steps for _, steps in ended] == [SYNC_EVERY] * 2
    assert not run.store.exists(keys.torchft_state(1))
    # Their first step applies the round, and nothing else.
    assert together(run, partial(work, 1), attempt=2) == [(state, 1) for state, _ in ended]
    assert len({state for state, _ in together(run, partial(work, 3), attempt=3)}) == 1


class Damaged(Run):
    """A run in which the contribution of rank 1 to round 2 is damaged in the bucket: no quorum is left there."""

    @property
    def store(self) -> Store:
        def damage(key: str, body: bytes) -> bytes:
            return body[:-1] + bytes([body[-1] ^ 1]) if key == keys.contribution(2, 1, 1) else body

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
        assert not run.store.exists(keys.torchft_state(2)), name
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
        assert not run.store.exists(keys.torchft_state(last)), (name, last)
        assert together(run, partial(joined, last=last, options=options), attempt=2) == ended, (name, last)
        # Nothing was stored meanwhile: the next step would have.
        assert not run.store.exists(keys.torchft_state(last)), (name, last)


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
                    rerun = Rendezvous.open(run.context(), 1, 2, Metrics())
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
    run = Run(tmp_path, replicas=1, min_participants=1)
    manager = Manager(Rendezvous.open(run.context(), 0, 1, Metrics()), model_of())
    with pytest.raises(AlgorithmError, match=r"registered StreamingDiLoCoFragment_0 .* allowed: the DiLoCo of torchft"):
        manager.register_state_dict_fn("StreamingDiLoCoFragment_0", lambda _: None, dict)


def test_a_run_whose_states_are_gone_is_refused_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    train_with_torchft(Rendezvous.open(run.context(), 0, 1, Metrics()), 2)
    run.store.delete([keys.torchft_state(round_) for round_ in range(3)])
    with pytest.raises(
        RendezvousError, match=r"Round 2 is committed, but neither .*00000002 nor the state of the round"
    ):
        train_with_torchft(Rendezvous.open(run.context(), 0, 2, Metrics()), 3)
