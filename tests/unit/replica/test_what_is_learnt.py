"""What replicas learn of each other with lossy codecs: statistics exactly, and nothing of what no round has counted."""

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.frontends.saved_state import with_progress
from muster.replica.parts.link import Alone
from muster.replica.phases.interrupted_phase import Phase, StoredPhase
from muster.replica.phases.synchronizer import OwnState, Synchronizer
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds import agreement, error_feedback
from muster.replica.rounds.error_feedback import StoredErrorFeedback
from muster.replica.rounds.exchange import Exchange
from muster.replica.rounds.round_context import Stops
from muster.replica.store.checkpoints import Checkpoints
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Encoding, Floats, Records, encode_records
from muster.replica.wire.blocks import Blocks
from tests.support.decoded_blocks import decode_blocks
from tests.support.peers import PATIENT_SECONDS, Faults, FaultyStore, Run, run_all
from tests.support.round_commits import commit_of

COUNT, STATISTICS = 500, 20
CODECS = ("fp32", "bf16", "int8", "int4", "topk2-64")
NO_OWN = OwnState(lambda *_: lambda: None, lambda: None)


@given(st.sampled_from(CODECS), st.integers(1, 40_000), st.data())
def test_the_last_elements_are_exact_in_any_cut(codec: str, count: int, data: st.DataObject) -> None:
    exact = data.draw(st.sampled_from([0, 1, count // 3, count - 1, count]))
    blocks = Blocks(count, codec_named(codec), exact)
    values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    # Blocks cover the elements once, in order, and lie where their elements are.
    spans = [blocks.span(range(block, block + 1)) for block in range(blocks.number)]
    assert [span.stop for span in spans[:-1]] == [span.start for span in spans[1:]]
    assert (spans[0].start, spans[-1].stop) == (0, count)
    assert all(blocks.covering(span) == range(block, block + 1) for block, span in enumerate(spans))
    assert sum(blocks.exact_in(span) for span in spans) == blocks.exact
    # Their bytes do not depend on which are encoded together.
    edges = sorted({0, blocks.number, *data.draw(st.lists(st.integers(0, blocks.number), max_size=2))})
    bodies, found, lost = [], [], np.zeros(count, np.float32)
    for start, stop in pairwise(edges):
        which, span = range(start, stop), blocks.span(range(start, stop))
        encoding = Encoding(blocks.codec, error=lost[span])
        body, _ = encode_records(Records("key", blocks, which), values[span], encoding)
        bodies.append(bytes(body[4096:]))
        found.append(decode_blocks("key", body[4096:], blocks, which))
    whole, _ = encode_records(Records("key", blocks, range(blocks.number)), values, Encoding(blocks.codec))
    assert b"".join(bodies) == bytes(whole[4096:])
    border = count - exact
    assert np.concatenate(found)[border:].tobytes() == values[border:].tobytes()
    assert not lost[border:].any()


class Explored:
    """A replica whose last elements are statistics."""

    def __init__(
        self,
        run: Run,
        rank: int,
        algorithm: Algorithm,
        folder: Path | None = None,
        *,
        stop: threading.Event | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.values = np.zeros(COUNT, np.float32)
        self.values[-STATISTICS:] = 1
        packing = ArrayPacking(self.values)
        packing.averaged += STATISTICS
        stops: dict[str, Any] = {} if stop is None else {"stops": Stops(stop, stop)}
        self.rendezvous: Rendezvous = run.open(rank, store=FaultyStore(run.store, faults or Faults()), **stops)
        self.outer = Synchronizer(self.rendezvous, packing, algorithm, NO_OWN, folder)

    @property
    def residual(self) -> Floats:
        found = self.outer._feedback.before()
        assert found is not None
        return found

    @property
    def momentum(self) -> Floats:
        return self.outer._training.state.momentum


def trained(run: Run, algorithm: Algorithm, step: Any, rounds: int = 3) -> list[Explored]:
    """The replicas after so many rounds; `step(rank, round)` is added to the values of each in its inner steps."""
    replicas: dict[int, Explored] = {}
    together = threading.Barrier(run.replicas)

    def work(rank: int) -> None:
        replica = replicas[rank] = Explored(run, rank, algorithm)
        for round_ in range(1, rounds + 1):
            together.wait(30)
            replica.values += step(rank, round_)
            replica.outer.end_round() if algorithm.sync_every > 1 else replica.outer.step(1.0)

    run_all([threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(run.replicas)])
    return [replicas[rank] for rank in range(run.replicas)]


def test_sparse_rounds_are_those_of_sparseloco(tmp_path: Path) -> None:
    """Against the paper's update (arXiv 2508.15706): e = 0.95 e + Δ; what is sent leaves e; θ -= the mean of it."""
    count, codec, kept = COUNT - STATISTICS, codec_named("topk2-16"), 16

    def step(rank: int, round_: int) -> Floats:
        made = np.random.default_rng((rank, round_)).standard_normal(COUNT).astype(np.float32)
        made[-STATISTICS:] = 0
        return made

    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, codec=codec.name, feedback_decay=0.95)
    replicas = trained(Run(tmp_path, replicas=3, min_participants=3), algorithm, step)
    theta, lost = np.zeros(count, np.float32), np.zeros((3, count), np.float32)
    for round_ in (1, 2, 3):
        mean = np.zeros(count)
        for rank in range(3):
            lost[rank] = np.float32(0.95) * lost[rank] - step(rank, round_)[:count]
            chunk = np.zeros((1, 4096), np.float32)
            largest = np.argsort(-np.abs(lost[rank]), kind="stable")[:kept]
            chunk[0, largest] = lost[rank, largest]
            coded = np.zeros((1, codec.payload_bytes(4096)), np.uint8)
            codec.encode(chunk, coded, None)
            codec.decode(coded, chunk)
            lost[rank] -= chunk[0, :count]
            mean += chunk[0, :count] / 3
        theta -= mean.astype(np.float32)
    for rank, replica in enumerate(replicas):
        np.testing.assert_allclose(replica.values[:count], theta, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(replica.residual[:count], lost[rank], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("codec", CODECS)
def test_variances_are_averaged_and_stay_positive(tmp_path: Path, codec: str) -> None:
    scales = np.logspace(-12, 4, STATISTICS).astype(np.float32)  # far apart, as those of layers are

    def step(rank: int, round_: int) -> Floats:
        made = np.random.default_rng(10 * round_ + rank).standard_normal(COUNT).astype(np.float32)
        made[-STATISTICS:] = scales * (rank + 1) if round_ == 1 else -scales * np.float32(0.5 * rank)
        return made

    replicas = trained(Run(tmp_path, replicas=2, min_participants=2), Algorithm(codec=codec, clip_norm=1.0), step)
    found = [replica.values[-STATISTICS:] for replica in replicas]
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], 1 + scales * np.float32(1.5 - 0.25 - 0.25), rtol=1e-6)
    assert not replicas[0].momentum[-STATISTICS:].any()


def test_statistics_that_vanish_in_one_round_do_not_become_negative(tmp_path: Path) -> None:
    def step(rank: int, round_: int) -> Floats:
        made = np.zeros(COUNT, np.float32)
        made[-STATISTICS:] = np.float32(12_345.678 * (rank + 1)) if round_ == 1 else 0
        return made

    run = Run(tmp_path, replicas=3, min_participants=3)
    replicas: dict[int, Explored] = {}

    def work(rank: int) -> None:
        replica = replicas[rank] = Explored(run, rank, Algorithm(codec="int8"))
        for round_ in (1, 2):
            if round_ == 2:
                replica.values[-STATISTICS:] = 0
            replica.values += step(rank, round_)
            replica.outer.step(1.0 + rank)

    run_all([threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(3)])
    assert (replicas[0].values[-STATISTICS:] == 0).all()


@pytest.mark.parametrize("codec", ["int8", "int4", "topk2-64"])
@pytest.mark.parametrize("why", ["outlier", "not finite", "suspect"])
def test_a_contribution_that_no_round_counts_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, why: str
) -> None:
    left: dict[int, Floats] = {}
    update = Synchronizer._update

    def step(rank: int, round_: int) -> Floats:
        made = np.random.default_rng(rank).standard_normal(COUNT).astype(np.float32)
        if (rank, round_) == (1, 2) and why != "suspect":
            made[: COUNT - STATISTICS] *= 1000 if why == "outlier" else np.nan
        return made

    def noted(self: Synchronizer, *args: Any) -> Any:
        made = update(self, *args)
        if self._rendezvous.rank == 1 and self.round in {2, 3}:
            left[self.round] = self._feedback.before()  # type: ignore[assignment]
        if self._rendezvous.rank == 1 and self.round == 2 and why == "suspect":
            return replace(made, suspect="its loss is unusual")
        return made

    monkeypatch.setattr(Synchronizer, "_update", noted)
    run = Run(tmp_path, replicas=3, min_participants=2)
    trained(run, Algorithm(codec=codec, outlier_factor=5 if why == "outlier" else 0), step)
    assert [item.rank for item in run.commit(2).excluded] == [1]
    assert left[2].any()
    assert left[2].tobytes() == left[3].tobytes()


def test_the_norm_is_that_of_what_is_given_and_what_is_sent_has_another_one(tmp_path: Path) -> None:
    def step(rank: int, round_: int) -> Floats:
        made = np.zeros(COUNT, np.float32)
        made[:200] = np.linspace(1, 2, 200) * (rank + round_)
        made[-STATISTICS:] = 1e6
        return made

    run = Run(tmp_path, replicas=3, min_participants=3)
    trained(run, Algorithm(codec="topk2-16", outlier_factor=5), step, rounds=2)
    whole = np.linalg.norm(step(0, 1)[: COUNT - STATISTICS])
    member = run.commit(1).members[0]
    assert member.norm == pytest.approx(whole, rel=1e-6)
    # 16 of 200 values are sent.
    assert member.sent is not None
    assert 0.2 * whole < member.sent < 0.5 * whole


def test_a_residual_survives_a_restart_after_a_round_that_counts_no_contribution(tmp_path: Path) -> None:
    class Claimed:
        epoch = 3
        counts: int | None = 3

        def counted(self, _: int) -> int | None:
            return self.counts

        def counted_back(self, round_: int) -> list[tuple[int, int]]:
            return [(round_, self.counts or 0)]

    def loaded(claimed: Claimed) -> StoredErrorFeedback:
        checkpoints = Checkpoints(tmp_path, "residual", contributor=claimed)
        return StoredErrorFeedback(codec_named("int8"), 2, checkpoints, 5)

    def values(feedback: StoredErrorFeedback) -> list[float]:
        found = feedback.before()
        assert found is not None
        return [float(value) for value in found]

    first = loaded(Claimed())
    residual = first.of(slice(0, 2))
    assert residual is not None
    residual.values[...] = 1
    residual.lend()
    residual.values[...] = 9  # what the codec has lost
    assert values(first) == [1, 1]
    first.save(5)
    assert values(loaded(Claimed())) == [9, 9]
    residual.settle(5, counts=False)
    nobody = Claimed()
    nobody.counts = None
    assert values(loaded(nobody)) == [1, 1]
    # Of another process of the rank that counts there is no residual.
    nobody.counts = 2
    assert values(loaded(nobody)) == [1, 1]
    # It is not known before: nothing changes.
    first.restore(None)
    assert values(first) == [1, 1]


def test_a_decayed_residual_is_that_of_sparse_loco(tmp_path: Path) -> None:
    """Against the recurrence of arXiv 2508.15706, and a contribution that does not count leaves no trace."""
    codec, decay, count = codec_named("topk2-16"), 0.5, 4096
    rng = np.random.default_rng(3)
    feedback = StoredErrorFeedback(codec, count, None, 0, decay)
    expected = np.zeros(count, np.float32)
    for counts in (True, True, False, True):
        gradient = rng.standard_normal(count).astype(np.float32)
        residual = feedback.of(slice(0, count))
        assert residual is not None
        residual.lend()
        wanted = np.float32(decay) * expected + gradient
        np.testing.assert_array_equal(residual.values + gradient, wanted)
        kept = np.where(np.abs(wanted) >= np.sort(np.abs(wanted))[-16], wanted, 0)
        residual.values[...] = wanted - kept
        residual.settle(1, counts=counts)
        expected = wanted - kept if counts else expected
        assert np.array_equal(feedback.before(), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("copied", [True, False])
def test_a_rerun_has_the_residual_of_its_predecessor_whose_contribution_counts_after_it_joined(
    tmp_path: Path, copied: bool
) -> None:
    run, folder = Run.alone(tmp_path / "run"), tmp_path / "own"
    reruns: list[Explored] = []

    def rerun(key: str) -> None:
        # The last look at the claims of the round's members has been made.
        if key == rendezvous_keys.commit(2):
            reruns.append(Explored(run, 0, Algorithm(codec="int8"), folder))

    first = Explored(run, 0, Algorithm(codec="int8"), folder, faults=Faults(before_create=rerun))
    lost = []
    for step in (1, 2):
        first.values += np.float32(step) * np.linspace(0, 1, COUNT, dtype=np.float32)
        first.outer.step(1.0)
        lost.append(first.residual)
    (second,) = reruns
    assert second.residual.tobytes() == lost[0].tobytes()
    if not copied:
        for path in folder.glob("muster-residual-*"):
            path.unlink()
    second.values += 1
    outcome = second.outer.step(1.0)
    assert outcome is not None
    assert (outcome.round, outcome.took_part) == (2, False)
    # The round has counted what was left of the round before.
    assert second.residual.tobytes() == (lost[1] if copied else np.zeros_like(lost[1])).tobytes()
    # A further rerun has the same.
    assert Explored(run, 0, Algorithm(codec="int8"), folder).residual.tobytes() == second.residual.tobytes()


@pytest.mark.parametrize("counts_elsewhere", [False, True], ids=["alone", "counts elsewhere"])
def test_a_rerun_that_has_missed_rounds_has_the_residual_of_its_last_contribution_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts_elsewhere: bool
) -> None:
    run, algorithm = Run(tmp_path / "run", replicas=2, min_participants=1), Algorithm(codec="topk2-16")
    folders = [tmp_path / "0", tmp_path / "1"]

    def play(*replicas: Explored) -> None:
        def step(replica: Explored) -> None:
            replica.values += np.arange(COUNT, dtype=np.float32)
            replica.outer.step(1.0)

        run_all([threading.Thread(target=step, args=(replica,), daemon=True) for replica in replicas])

    first, lost = (Explored(run, rank, algorithm, folders[rank]) for rank in range(2))
    play(first, lost)
    left = lost.residual
    assert left.any()
    window = 0.0
    monkeypatch.setattr(agreement, "grace_window", lambda *_: window)
    play(first)
    if counts_elsewhere:
        window = PATIENT_SECONDS
        play(first, Explored(run, 1, algorithm))  # what it leaves is not copied
        window = 0.0
    play(first)
    members = [[member.rank for member in run.commit(number).members] for number in range(1, first.outer.round + 1)]
    assert members == ([[0, 1], [0], [0, 1], [0]] if counts_elsewhere else [[0, 1], [0], [0]])
    expected = np.zeros_like(left) if counts_elsewhere else left
    assert Explored(run, 1, algorithm, folders[1]).residual.tobytes() == expected.tobytes()


def test_a_replica_that_is_stopped_has_the_residual_again_however_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_feedback, "SMALL_BYTES", 0)
    run, stop = Run.alone(tmp_path / "run"), threading.Event()
    first = Explored(run, 0, Algorithm(codec="topk2-16"), tmp_path / "own", stop=stop)
    for _ in range(2):
        first.values += np.arange(COUNT, dtype=np.float32)
        first.outer.step(1.0)
    stop.set()
    first.outer.finish()
    assert first.residual.any()
    again = Explored(run, 0, Algorithm(codec="topk2-16"), tmp_path / "own")
    assert again.residual.tobytes() == first.residual.tobytes()


def test_an_eager_replica_that_is_stopped_while_it_waits_loses_nothing_of_what_it_gave(tmp_path: Path) -> None:
    run, stop = Run(tmp_path / "run", replicas=2, min_participants=2), threading.Event()
    algorithm = Algorithm(eager=True, codec="topk2-16")
    threading.Thread(target=lambda: Explored(run, 0, algorithm), daemon=True).start()
    replica = Explored(run, 1, algorithm, tmp_path / "own", stop=stop)
    step = np.linspace(1, 2, COUNT).astype(np.float32)
    for number in (1, 2):
        replica.values -= step * np.float32(number)
        if number == 2:
            stop.set()
            with pytest.raises(StoppedError):
                replica.outer.step(1.0)
        else:
            replica.outer.step(1.0)
    again = Explored(run, 1, algorithm, tmp_path / "own")
    phase = again.outer.interrupted()
    assert phase is not None
    assert phase.begun is not None
    assert phase.residual is not None
    trained = COUNT - STATISTICS
    np.testing.assert_allclose((phase.begun - phase.parameters)[:trained], (3 * step)[:trained], rtol=1e-5)
    # The contribution that it waited for counts for nothing.
    assert not phase.residual.any()
    assert phase.samples.tolist() == [2.0]


def test_a_phase_is_not_resumed_after_another_round(tmp_path: Path) -> None:
    stored = StoredPhase(Checkpoints(tmp_path, "stopped", kept=1))
    empty = np.zeros(2, np.float32)
    stored.save(Phase(round=3, given=4, epoch=1, steps=1, samples=np.ones(1), parameters=empty))
    assert stored.load(Alone(), 3) is not None
    assert stored.load(Alone(), 4) is None


def test_a_void_round_counts_nobody_and_a_share_is_that_of_the_weight(tmp_path: Path) -> None:
    rendezvous = Run.alone(tmp_path).open()
    commit = commit_of([0, 1])
    own, other = commit.members
    commit = commit.model_copy(update={"members": (own, other.model_copy(update={"weight": 3 * own.weight}))})
    rendezvous.rounds.seen.note(commit)
    assert rendezvous.rounds.seen.counted(commit.round) == own.epoch
    assert Exchange(commit, np.zeros(1, np.float32), 0, own.epoch).share == 0.25
    rendezvous.rounds.seen.note(commit.model_copy(update={"void": True}))
    assert rendezvous.rounds.seen.counted(commit.round) is None


def test_what_is_saved_later_replaces_what_it_holds_of_the_whole_state() -> None:
    whole = {"round": 3, "trainer": {"large": 1, "small": 1}, "inner": {"state": 1, "groups": 1}}
    part = {"round": 4, "trainer": {"small": 2}, "inner": {"groups": 2}}
    merged = {"round": 4, "trainer": {"large": 1, "small": 2}, "inner": {"state": 1, "groups": 2}}
    assert with_progress(whole, part) == merged
    assert with_progress({**whole, "round": 4}, part) == {**whole, "round": 4}


def test_the_dither_of_an_object_follows_from_its_key() -> None:
    blocks, values = Blocks(1024, codec_named("int8")), np.linspace(-1, 1, 1024).astype(np.float32)

    def payload(key: str) -> Floats:
        body, _ = encode_records(Records(key, blocks, range(1)), values, Encoding(blocks.codec, dither=True))
        return decode_blocks(key, body[4096:], blocks, range(1))

    assert payload("a").tobytes() == payload("a").tobytes()
    assert payload("a").tobytes() != payload("b").tobytes()
