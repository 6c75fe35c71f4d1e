"""Rounds: the order of their steps, who counts in them and how often, and what makes them void."""

import logging
import threading
from contextlib import suppress
from functools import partial
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.commit import Resumed
from muster.contract.run.round_values import METRICS_MAX, ROUND_MAX
from muster.contract.run.trained_data import PIECES_MAX, Piece, TrainedData
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import FencedError, OtherStateError, RendezvousError
from muster.replica.rounds.agreement import commit_time
from muster.replica.rounds.background import Background
from muster.replica.rounds.claims import Claim, claim_rank
from muster.replica.rounds.contribution import make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import Stops
from muster.replica.rounds.round_history import last_committed
from muster.replica.rounds.round_mean import reduced_mean
from muster.replica.statistics.statistics import Notes
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, Floats, decode_header
from muster.replica.wire.headers import ContributionHeader
from tests.support.data_position import DataPosition
from tests.support.peers import (
    PATIENT_SECONDS,
    RUN,
    Faults,
    FaultyStore,
    Killed,
    Peer,
    Run,
    all_ended,
    gradient_of,
    kill_at,
    missing_only_in,
    none_is_taken_for_dead,
    returns_before,
    together,
)
from tests.support.waiting import wait_until


@pytest.fixture
def alone(tmp_path: Path) -> Run:
    return Run.alone(tmp_path)


def trained_alone(run: Run, attempt: int, faults: Faults) -> bytes:
    """The parameters of a replica after five rounds, with error feedback."""
    rendezvous, parameters = run.open(attempt=attempt, store=FaultyStore(run.store, faults)), np.zeros(1000, np.float32)
    outer = DiLoCo(rendezvous, parameters, Algorithm(codec="int4"), checkpoint_dir=run.root / "checkpoints")
    while outer.round < 5:
        parameters -= gradient_of(0, outer.round, parameters.size)
        outer.step()
    return parameters.tobytes()


def test_the_residual_is_not_lost_with_a_process_that_dies_once_its_contribution_counts(tmp_path: Path) -> None:
    unbroken = trained_alone(Run.alone(tmp_path / "unbroken"), 1, Faults())
    run = Run.alone(tmp_path / "run")
    with pytest.raises(Killed):
        trained_alone(run, 1, Faults(after_create=kill_at(rendezvous_keys.commit(2))))
    assert trained_alone(run, 2, Faults()) == unbroken


def test_the_largest_header_fits_without_metrics(alone: Run) -> None:
    """A replica with many metrics that has trained many shards, and is suspect."""
    metrics = {f"{number:048}": -1.2345678901234567e-300 for number in range(METRICS_MAX)}
    notes = Notes(metrics, (ROUND_MAX,) * METRICS_MAX, (10**10,) * 5, Resumed(tier="memory", round=ROUND_MAX, step=1))
    for first, most, suspect, fits in ((0, 10**5, None, True), (10**12 - 100, 10**10, "x" * 200, False)):
        pieces = tuple(Piece(first + number, most - 1, most) for number in range(PIECES_MAX))
        data = TrainedData(shards=10**6, pieces=pieces, turn=2)
        update = LocalUpdate(gradient_of(0, 1, alone.count), 1e15 - 0.1, suspect=suspect, leaves=True, data=data)
        mine = make_contribution(alone.context(), Claim(9_999, 10**6, 10**6, 10**6), ROUND_MAX, update, notes)
        read = decode_header(mine.key, mine.body, ContributionHeader)
        assert (read.member.data, read.suspect) == (data, suspect)
        assert read.member.metrics == (metrics if fits else {})


def test_a_superseded_process_makes_no_shard_in_the_place_of_its_successor(alone: Run) -> None:
    older = claim_rank(alone.store, RUN, 0, 1)
    mine = make_contribution(alone.context(), older, 1, LocalUpdate(gradient_of(0, 1, alone.count), 1.0), Notes())
    successor = alone.start(0, attempt=2).join()
    assert successor.error is None
    made: list[str] = []
    context = alone.context(FaultyStore(alone.store, Faults(before_create=made.append)))
    reduced_mean(context, alone.commit(1), mine, context.polling())
    assert made == []


def test_a_superseded_process_uploads_no_contribution(alone: Run) -> None:
    older = alone.open()
    claim_rank(alone.store, RUN, 0, 2)
    update = LocalUpdate(gradient_of(0, 1, alone.count), 1.0)
    for contributes in (older.rounds.exchange, older.rounds.give):
        with pytest.raises(FencedError):
            contributes(1, update)
    assert alone.store.keys(rendezvous_keys.CONTRIBUTIONS, "d") == []


@pytest.mark.parametrize("committed", [False, True])
def test_a_replicas_own_state_is_saved_before_its_contribution_can_be_seen(alone: Run, committed: bool) -> None:
    if committed:
        # Too late to contribute: the state is saved all the same, because the data were used.
        alone.start(0).join()
    saved: list[str] = []
    store = FaultyStore(alone.store, Faults(before_create=kill_at(rendezvous_keys.CONTRIBUTIONS)))
    rendezvous = alone.open(attempt=2, store=store)
    update = LocalUpdate(np.ones(alone.count, np.float32), 1.0, before_giving=lambda _: saved.append("saved"))
    if committed:
        rendezvous.rounds.exchange(1, update)
    else:
        with pytest.raises(Killed):
            rendezvous.rounds.exchange(1, update)
    assert saved == ["saved"]


def test_a_commits_time_is_finer_than_the_stores_clock() -> None:
    noticed_after = 0.02  # a process sees a commit late, and the next one is made by the process that saw it
    for seconds in (0.3, 0.7, 2.9):
        committed = [100.0]
        for round_ in range(1, 60):
            now = 100.4 + round_ * seconds
            contributed = now - 0.05
            committed.append(commit_time(floor(contributed) + 0.05, committed[-1], seconds - noticed_after))
            assert now - 1 <= committed[-1] <= now, seconds
        # Whole seconds would make 0 and 1 of rounds that take a third of one.
        assert all(abs(end - begin - seconds) < 0.25 for begin, end in pairwise(committed[10:])), seconds
    # It follows the store's clock when the own one is wrong.
    assert [commit_time(1000.0, 990.0, own) for own in (3600.0, 0.0, 10.4)] == [1001.0, 1000.0, 1000.4]


# --- A round whose amendments leave fewer members than `min_participants` changes nothing, and the run goes on ------


def damaging(*ranks: int) -> Faults:
    damaged, at = {rendezvous_keys.contribution(2, rank, 1) for rank in ranks}, HEADER_BYTES + 9
    return Faults(
        rewrite=lambda key, body: body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] if key in damaged else body
    )


def held(peers: list[Peer], rank: int) -> Floats:
    """The global parameters of a replica that trains; `peers` may still grow."""
    wait_until("the list of peers", lambda: len(peers) > rank)
    rendezvous = peers[rank].rendezvous
    assert rendezvous is not None
    assert rendezvous.departure.training is not None
    return rendezvous.departure.training.state.parameters


@pytest.mark.parametrize(("replicas", "damaged"), [(2, (1,)), (3, (1, 2))], ids=["one of two", "two of three"])
def test_a_quorum_that_damage_has_lost_makes_the_round_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, damaged: tuple[int, ...]
) -> None:
    none_is_taken_for_dead(monkeypatch)
    run = Run(tmp_path, replicas=replicas, min_participants=2, snapshot_rounds=2)
    seen: dict[tuple[int, int], bytes] = {}
    peers: list[Peer] = []

    def note(rank: int, round_: int) -> None:
        seen[rank, round_] = held(peers, rank).tobytes()

    for rank in range(replicas):
        peers.append(run.start(rank, faults=damaging(*damaged), before_step=partial(note, rank)))
    with all_ended(peers):
        [final] = {peer.parameters() for peer in peers}
    # One amendment for each: the first maker of the shard is one of the two.
    amendment = run.commit(2, len(damaged))
    assert amendment.void
    assert [item.rank for item in amendment.excluded] == list(damaged)
    for rank in range(replicas):
        # Neither the parameters nor the momentum moved, and all took part in the next round.
        assert seen[rank, 3] == seen[rank, 2] != seen[rank, 1]
        assert [outcome.took_part for outcome in peers[rank].outcomes] == [True, False, True, True]
        assert peers[rank].outcomes[1].participants == ()
    # Also for a joiner, which replays the round.
    assert run.start(0, attempt=2).parameters() == final


# --- A replica whose parameters have other bits than its peers' is found before anything of it is averaged ----------


FLIPPED = 3  # the round before which the bit changes


def started(run: Run) -> list[Peer]:
    """Replicas of which one changes one bit of its global parameters."""
    peers: list[Peer] = []

    def flip(round_: int) -> None:
        if round_ == FLIPPED:
            held(peers, 1).view("u4")[7] ^= 1

    for rank in range(run.replicas):
        peers.append(run.start(rank, before_step=flip if rank == 1 else lambda _: None))
    return peers


def test_a_replica_with_other_bits_is_excluded_from_that_very_round_and_its_rerun_has_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, FLIPPED + 1)
    run = Run(tmp_path, min_participants=2, rounds=5)
    peers = started(run)
    with all_ended(peers):
        error = peers[1].join().error
        finals = {peers[rank].parameters() for rank in (0, 2)}
    assert isinstance(error, OtherStateError)
    assert "The parameters of this replica before round 3 have the digest" in str(error)
    commit = run.commit(FLIPPED)
    assert [member.rank for member in commit.members] == [0, 2]
    [excluded] = commit.excluded
    assert excluded.rank == 1
    assert "its parameters before the round have the digest" in excluded.reason
    assert {run.start(1, attempt=2).parameters()} == finals == {
        run.replayed_by_hand(lambda round_: [0, 1, 2] if round_ < FLIPPED else [0, 2])
    }  # fmt: skip


def test_a_tie_between_bits_ends_all_and_their_reruns_load_the_runs(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=1)
    peers = started(run)
    with all_ended(peers):
        errors = [peer.join().error for peer in peers]
    for error in errors:
        assert isinstance(error, RendezvousError)
        assert "Round 3 can no longer reach 1 participants (rank 0: its parameters before the round" in str(error)

    # Of a former process the contribution stays, until a new one claims the rank.
    both = threading.Barrier(2)
    again = [run.start(rank, attempt=2, before_step=lambda _: both.wait(PATIENT_SECONDS)) for rank in range(2)]
    with all_ended(again):
        assert {peer.parameters() for peer in again} == {run.replayed_by_hand()}


def test_a_replica_that_comes_when_the_round_is_committed_finds_its_other_bits(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, rounds=1)
    peers = run.start_all()
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    rendezvous = run.open(attempt=2)
    with pytest.raises(OtherStateError):
        rendezvous.rounds.exchange(1, LocalUpdate(gradient_of(0, 1, run.count), 1.0, state="00000000"))


# --- A process that claims its rank before a commit and loads until after it takes part as soon as it can -----------


def test_a_process_that_loads_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A wait in round 3 or 4 would last as long as the test may.
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=5)
    looks: list[str] = []
    of_joiner = rendezvous_keys.contribution(5, 1, 3)

    def loaded(round_: int) -> None:
        if round_ == 3:
            # It claims its rank after the second commit, which does not have it.
            rendezvous.append(run.open(1, 2))
        if round_ == 5:
            DiLoCo(rendezvous[0], np.zeros(run.count, np.float32))

    rendezvous: list[Rendezvous] = []
    first = run.start(1, before_step=returns_before(2))
    other = run.start(0, faults=Faults(before_read=looks.append), before_step=loaded)
    with all_ended([first, other]):
        # Once it has loaded, the last round waits for it.
        last = run.root / rendezvous_keys.commit(5)
        wait_until("a second look for it", lambda: looks.count(of_joiner) > 1 or last.exists())
        assert not last.exists()
        assert [run.commit(round_).absent for round_ in (2, 3, 4)] == [(1,), (), ()]
        update = LocalUpdate(gradient_of(1, 5, run.count), 2.0)
        training = rendezvous[0].departure.training
        assert isinstance(training, ReplicatedState)
        assert rendezvous[0].rounds.play(training, update) is not None
        assert other.parameters() == training.state.parameters.tobytes()
    assert [member.rank for member in run.commit(5).members] == [0, 1]


def test_a_process_that_claimed_before_the_first_round_and_loads_after_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 1)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=2)
    looks: list[str] = []
    joined = run.open(1)

    def loaded(round_: int) -> None:
        if round_ == 2:
            DiLoCo(joined, np.zeros(run.count, np.float32))

    other = run.start(0, faults=Faults(before_read=looks.append), before_step=loaded)
    with all_ended([other]):
        last, of_joined = run.root / rendezvous_keys.commit(2), rendezvous_keys.contribution(2, 1, 2)
        wait_until("a second look for it", lambda: looks.count(of_joined) > 1 or last.exists())
        assert not last.exists()
        training = joined.departure.training
        assert isinstance(training, ReplicatedState)
        assert joined.rounds.play(training, LocalUpdate(gradient_of(1, 2, run.count), 2.0)) is not None
        assert other.parameters() == training.state.parameters.tobytes()
    assert [member.rank for member in run.commit(1).members] == [0]
    assert [member.rank for member in run.commit(2).members] == [0, 1]


# --- What a replica has trained counts once: with its tokens, in one round, whichever of its processes contributed it


def test_a_fragment_weighs_the_tokens_since_it_was_last_exchanged(tmp_path: Path) -> None:
    run, algorithm = Run.alone(tmp_path), Algorithm(sync_every=4, fragments=2, delay=1)
    outer = DiLoCo(run.open(), np.zeros(run.count, np.float32), algorithm)
    # Sent after steps 1, 3, 5 and 7: in turn the first and the second half.
    for tokens in (1, 2, 4, 8, 16, 32, 64, 128):
        outer.step(tokens)
    weights = [run.commit(round_).members[0].weight for round_ in (1, 2, 3, 4)]
    assert weights == [1, 1 + 2 + 4, 2 + 4 + 8 + 16, 8 + 16 + 32 + 64]


def dies_at_commit(commits: list[bytes]) -> Faults:
    """The process dies when it commits the first round; what it would have written goes to `commits`."""

    def rewrite(key: str, body: bytes) -> bytes:
        if key == rendezvous_keys.commit(1):
            commits.append(body)
            raise Killed
        return body

    return Faults(rewrite=rewrite)


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(sync_every=3, delay=1, alpha=0.5), Algorithm(), Algorithm(eager=True)],
    ids=["delayed", "at once", "eager"],
)
def test_a_round_that_counts_a_former_process_counts_nothing_of_its_successor(
    tmp_path: Path, algorithm: Algorithm
) -> None:
    run = Run.alone(tmp_path)
    commits: list[bytes] = []

    def begin(attempt: int, faults: Faults) -> tuple[DiLoCo, Floats]:
        parameters = np.zeros(run.count, np.float32)
        return DiLoCo(
            run.open(attempt=attempt, store=FaultyStore(run.store, faults)), parameters, algorithm
        ), parameters

    first, parameters = begin(1, dies_at_commit(commits))
    for _ in range(algorithm.sync_every - algorithm.delay):
        parameters -= 1
        with suppress(Killed):
            first.step()
    with suppress(Killed):
        first.finish()
    assert commits
    # Its commit takes effect when its rerun has joined, which trains the same data again.
    second, parameters = begin(2, Faults())
    run.store.create(rendezvous_keys.commit(1), commits[0])
    outcome = None
    while outcome is None:
        parameters -= 1
        outcome = second.step()
    assert (outcome.round, outcome.participants, outcome.took_part) == (1, (0,), False)
    assert second.round == 1
    second.finish()
    training = second._rendezvous.departure.training
    assert training is not None
    assert training.state.parameters.tobytes() == parameters.tobytes()
    while (outcome := second.step()) is None:
        pass
    assert (outcome.round, outcome.took_part) == (2, True)


@pytest.mark.parametrize(
    ("steps", "is_stopped", "codec"), [(0, False, "int8"), (0, True, "fp32"), (2, False, "fp32"), (2, True, "int8")]
)
def test_a_rerun_that_ends_before_the_round_counts_its_predecessor_repeats_nothing(
    tmp_path: Path, steps: int, is_stopped: bool, codec: str
) -> None:
    run = Run.alone(tmp_path / "run")
    commits: list[bytes] = []

    def begin(attempt: int, faults: Faults) -> tuple[DiLoCo, DataPosition, threading.Event]:
        stop, reader = threading.Event(), DataPosition()
        outer = DiLoCo(
            run.open(attempt=attempt, store=FaultyStore(run.store, faults), stops=Stops(stop)),
            np.zeros(run.count, np.float32),
            Algorithm(sync_every=4, codec=codec),
            trainer_state={"reader": reader},
            checkpoint_dir=tmp_path / "checkpoints",
        )
        return outer, reader, stop

    def train(outer: DiLoCo, reader: DataPosition, steps: int) -> None:
        for _ in range(steps):
            reader.position += 1
            outer.step()

    first, reader, _ = begin(1, dies_at_commit(commits))
    with suppress(Killed):
        train(first, reader, 4)
    second, reader, stop = begin(2, Faults())
    assert (second.round, reader.position) == (0, 0)
    train(second, reader, steps)
    if is_stopped:
        stop.set()
        second.finish()
    # The commit takes effect now: it counts what the first process has given.
    run.store.create(rendezvous_keys.commit(1), commits[0])
    third, reader, _ = begin(3, Faults())
    assert (third.round, reader.position) == (1, 4)


def test_an_eager_replica_whose_round_is_deleted_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 1)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=5, snapshot_rounds=1)
    parameters = np.zeros(run.count, np.float32)
    late = DiLoCo(run.open(1), parameters, Algorithm(eager=True))
    other = np.zeros(run.count, np.float32)
    outer = DiLoCo(run.open(), other, Algorithm(eager=True))
    while outer.round < run.rounds:
        other -= 1
        outer.step()
    outer.finish()
    steps = 0
    while late.round < run.rounds:
        parameters -= 1
        late.step()
        steps += 1
        assert steps < 9
    late.finish()
    assert last_committed(run.store) == late.round == run.rounds
    assert parameters.tobytes() == other.tobytes()


# --- A phase with NaN in it costs its replica one round: what the trainer's own optimizer holds is restored ---------


ROUNDS = 6
DELAYED = Algorithm(sync_every=2, delay=1, alpha=0.5)
POISONED = 3  # the phase in which rank 1 meets a batch of NaN


class Momentum:
    """An inner optimizer: it never forgets a NaN."""

    def __init__(self, count: int) -> None:
        self.average = np.zeros(count, np.float32)

    def moved(self, gradient: Floats) -> Floats:
        self.average = np.float32(0.9) * self.average + gradient
        return self.average

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.average = state_dict["average"].copy()


class Reader(DataPosition):
    """Its state has an infinity, which is sound."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "best": np.array(np.inf, np.float32)}


def train(
    rendezvous: Rendezvous, folder: Path | None, algorithm: Algorithm, *, poisoned: int = POISONED, until: int = ROUNDS
) -> tuple[dict[int, tuple[int, ...]], Momentum, Reader]:
    """The participants of each round, and what the replica holds at the end."""
    parameters = np.zeros(10, np.float32)
    optimizer, reader = Momentum(10), Reader()
    outer = DiLoCo(
        rendezvous,
        parameters,
        algorithm,
        trainer_state={"optimizer": optimizer, "reader": reader},
        checkpoint_dir=None if folder is None else folder / f"rank-{rendezvous.rank}",
    )
    participants = {}
    while outer.round < until:
        batch = reader.draw()
        is_poisoned = rendezvous.rank == 1 and batch == (poisoned - 1) * algorithm.sync_every
        gradient = np.full(10, np.nan if is_poisoned else 1.0, np.float32)
        parameters -= optimizer.moved(gradient)
        outcome = outer.step()
        if outcome is not None:
            participants[outcome.round] = outcome.participants
    if (outcome := outer.finish()) is not None:
        participants[outcome.round] = outcome.participants
    return participants, optimizer, reader


@pytest.mark.parametrize(
    ("algorithm", "poisoned", "is_saved"),
    [(Algorithm(), 1, True), (Algorithm(), POISONED, False), (DELAYED, 1, False), (DELAYED, POISONED, True)],
)
def test_a_batch_of_nan_costs_one_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, poisoned: int, is_saved: bool, algorithm: Algorithm
) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)
    folder = tmp_path if is_saved else None
    caplog.set_level(logging.WARNING, "muster.replica")
    (_, (participants, optimizer, reader)) = together(
        run, lambda rendezvous: train(rendezvous, folder, algorithm, poisoned=poisoned)
    )
    assert participants == {round_: (0,) if round_ == poisoned else (0, 1) for round_ in range(1, ROUNDS + 1)}
    assert np.isfinite(optimizer.average).all()
    # The data position was sound: no batch is drawn again, and the one with NaN is not met twice.
    assert reader.position == ROUNDS * algorithm.sync_every - algorithm.delay
    [healed] = [record.getMessage() for record in caplog.records if "event=healed" in record.getMessage()]
    assert "part=trainer_state['optimizer'] state_of_round=" in healed


def test_a_rerun_does_not_get_the_nan_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)

    def work(rendezvous: Rendezvous) -> Any:
        return train(rendezvous, tmp_path, Algorithm(), until=POISONED)

    together(run, work)
    (_, (participants, optimizer, reader)) = together(run, work, attempt=2)
    assert participants == {}
    # As after the round before, whose batches counted.
    assert np.isfinite(optimizer.average).all()
    assert reader.position == POISONED - 1


def test_a_signal_that_ends_a_wait_leaves_the_exchange_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    exchanges, over = Background[bool](), threading.Event()
    exchanges.begin(lambda: over.wait(60))
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exchanges.wait()
    assert exchanges.busy
    over.set()
    assert exchanges.wait()
    assert not exchanges.busy
