"""Inner states between two rounds: what is saved when, what a restart continues from, and that nothing is lost."""

from pathlib import Path

import pytest

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.options.tiers.replica.tier import Held
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.phase_states import StateId
from tests.support.inner_training import ALGORITHM, STEPS, Lives, undisturbed
from tests.support.memory_service import memory_service
from tests.support.waiting import wait_until


def names(folder: Path) -> list[StateId]:
    """The states of which files lie below a folder, oldest first."""
    found = [Held.named(path.stem) for path in sorted(folder.rglob("*.state"))]
    return [held.id for held in found if held is not None]


@pytest.mark.parametrize(
    ("algorithm", "killed"),
    [
        (ALGORITHM, (11, 20, 24, 25, 26, 49, 50, 64)),
        (Algorithm(sync_every=24, fragments=2, learning_rate=1.0, momentum=0.5), (57,)),
        (Algorithm(sync_every=20, codec="int8"), (57,)),
    ],
    ids=["plain", "fragments", "error feedback"],
)
def test_a_killed_process_continues_after_the_last_state_with_the_same_bits(
    tmp_path: Path, algorithm: Algorithm, killed: tuple[int, ...]
) -> None:
    expected = undisturbed(tmp_path, 80, algorithm)
    for killed_after in killed:
        lives = Lives(tmp_path / f"{killed_after}", algorithm=algorithm)
        lives.begin().train(killed_after)
        second = lives.begin(attempt=2)
        continued_at = second.outer.round * algorithm.interval + second.outer.steps
        assert 0 <= killed_after - continued_at <= 10
        second.train(80 - continued_at)
        assert second.used == list(range(continued_at, 80))
        assert second.bits == expected, killed_after


def test_states_are_few_and_those_of_earlier_phases_go(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(3 * STEPS + 22)
    # The run's steps are counted: these are the 75th, the 80th and the 90th.
    assert names(lives.disk) == [(3, 0), (3, 5), (3, 15)]
    in_s3 = sorted(path.name for path in (lives.run.root / "inner-states").rglob("*-*-*"))
    assert [Held.named(name).id for name in in_s3] == [(2, 10), (3, 5)]  # type: ignore[union-attr]


def test_s3_continues_where_the_instance_is_lost(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(STEPS + 24)
    lives.has_disk = False
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((1, 15), "s3")
    second.train(60 - STEPS - 15)
    assert second.bits == undisturbed(tmp_path, 60)
    # The contributions say from where the process has continued.
    first, resumed = (lives.run.commit(round_).members[0].resumed for round_ in (1, 2))
    assert first is None
    assert resumed is not None
    assert (resumed.tier, resumed.round, resumed.step) == ("s3", 1, 15)


def test_the_newest_state_wins_and_of_two_the_one_of_the_faster_tier(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(20)
    lives.tiers = CheckpointTiers(s3_every=1)
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "disk")
    second.train(1)
    third = lives.begin(attempt=3)
    assert (third.place, third.tier) == ((0, 21), "s3")


def test_the_memory_of_the_cluster_is_used_where_it_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_service() as service:
        monkeypatch.setenv("MUSTER_MEMORY_ENDPOINT", service.url)
        lives = Lives(tmp_path)
        lives.begin().train(STEPS + 22)
        (namespace,) = service.namespaces
        assert namespace.startswith("muster-test-")
        # The library's namespaces have a rank more, for its metadata.
        assert service.namespaces[namespace] == {"num_ranks": 2, "steps_retained": 3}
        assert sorted(step for _, _, step in service.shards) == [25, 30, 40]
        assert not lives.disk.exists()
        second = lives.begin(attempt=2)
        assert (second.place, second.tier) == ((1, 15), "memory")
        second.train(60 - STEPS - 15)
        assert second.bits == undisturbed(tmp_path, 60)
        second.outer.finish()
        assert not service.namespaces


def test_a_trainer_that_saves_nothing_itself_continues_too(tmp_path: Path) -> None:
    for name, tiers in {"plain": None, "tiers": CheckpointTiers(memory_every=10, s3_every=20)}.items():
        lives = Lives(tmp_path / name, tiers, keeps_own_state=False)
        lives.begin().train(STEPS + 3)
        second = lives.begin(attempt=2)
        assert second.place == (1, 0)
        assert lives.disk.exists() == (tiers is not None), "without tiers nothing is saved between rounds"
    second.train(60 - STEPS)
    assert second.bits == undisturbed(tmp_path, 60)


def test_nothing_is_left_after_the_training(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    life = lives.begin().train(2 * STEPS + 22)
    life.outer.end_round()
    life.outer.finish()
    assert not names(lives.disk)
    assert not list((lives.run.root / "inner-states").rglob("*-*-*"))


@pytest.mark.parametrize(
    "algorithm", [Algorithm(sync_every=20, eager=True), Algorithm(sync_every=20, delay=6)], ids=["eager", "delay"]
)
def test_a_phase_that_overlaps_with_an_exchange_continues(tmp_path: Path, algorithm: Algorithm) -> None:
    lives = Lives(tmp_path, CheckpointTiers(memory_every=5), algorithm)
    first = lives.begin()
    for _ in range(50):
        first.train(1)
        wait_until("the exchange", lambda: not first.rendezvous.departure.training.exchanges.is_running)  # type: ignore[union-attr]
    second = lives.begin(attempt=2)
    used = second.optimizer.position
    # With `eager` the state is of before the exchange that was running; with `delay` none is saved while it runs.
    assert 0 <= 50 - used <= 10
    second.train(60)
    assert second.used == list(range(used, used + 60))
    assert second.outer.round >= 4


def test_a_phase_shorter_than_memory_every_is_saved_by_the_runs_steps(tmp_path: Path) -> None:
    lives = Lives(tmp_path, CheckpointTiers(memory_every=10), Algorithm(sync_every=4))
    lives.begin().train(35)
    # After steps 10, 20 and 30: in the phases of 8 and 28, and at the end of the one of 20.
    assert names(lives.disk) == [(2, 2), (5, 0), (7, 2)]


def test_a_state_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    life = lives.begin().train(12)
    life.parameters[3] = float("nan")
    life.train(9)
    assert names(lives.disk) == [(0, 10)]
