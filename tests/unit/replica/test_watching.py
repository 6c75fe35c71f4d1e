"""The rules that watch the training, as a replica applies them to itself."""

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

from muster.contract.exits import ReplicaExit
from muster.contract.run.commit import Commit, Member
from muster.contract.run.finding import FINDINGS_MAX
from muster.contract.spec.watch_rules import Hang, Loss, NoRound, Rule, Slow, Watch
from muster.options.watch.replica.findings import Findings
from muster.options.watch.replica.inquiry import Inquiry, ProcessProgress, hang_text
from muster.options.watch.replica.round_rules import slow_process, slower_than_others, unusual_loss
from muster.options.watch.replica.training_watch import TrainingWatch
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.board import InnerGroup, LocalBoard
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import WatchError
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.round_context import RoundContext
from muster.replica.statistics.progress import Progress
from muster.replica.store.transport import StoreUnavailableError
from tests.support.groups import ThreadGroup
from tests.support.peers import Faults, FaultyStore, HandClock, Run, together
from tests.support.round_commits import commit_of, member
from tests.support.waiting import wait_until
from tests.support.watched_run import WatchedRun, findings_in

CLAIM = Claim(rank=0, attempt=1, incarnation=1, epoch=1)


def commits(*rounds: Sequence[Member]) -> list[Commit]:
    return [commit_of(members, round=number, epochs=(1, 1, 1)) for number, members in enumerate(rounds, start=1)]


def of_loss(rank: int, loss: float) -> Member:
    return member(rank, weight=2.0, metrics={"loss": loss})


def of_pace(*seconds: float | None, epoch: int = 1) -> list[Member]:
    """The members of a round, of which the first one has `epoch`."""
    return [member(rank, weight=2.0, seconds=each, epoch=1 if rank else epoch) for rank, each in enumerate(seconds)]


# The loss


def test_a_loss_is_unusual_if_it_is_no_number_or_far_above_the_last_rounds() -> None:
    recent = commits(*[[of_loss(0, 2.0), of_loss(1, 2.2)]] * 3)
    jump = "its metric loss, 6.31, is more than 3 times the median of the last 3 rounds, 2.1"
    rows: list[tuple[Loss, float | None, list[Commit], str | None]] = [
        (Loss(), math.nan, [], "its metric loss is nan"),
        (Loss(), math.inf, recent, "its metric loss is inf"),
        (Loss(), 6.31, recent, jump),
        (Loss(), 6.29, recent, None),
        (Loss(), None, recent, None),
        # A jump needs three rounds and a positive loss.
        (Loss(), 9.0, recent[:2], None),
        (Loss(), 9.0, commits(*[[of_loss(0, -1.0)]] * 4), None),
        (Loss(metric="nll"), 9.0, recent, None),
    ]
    for number, (rule, loss, rounds, text) in enumerate(rows):
        assert unusual_loss(rule, loss, rounds) == text, number


def trained(run: Run, losses: Callable[[int, int], float], rounds: int) -> list[WatchError | bytes]:
    """The parameters of each replica after so many rounds, or its error. `losses` has that of a rank before a round."""

    def work(rendezvous: Rendezvous) -> WatchError | bytes:
        parameters = np.zeros(10, np.float32)
        outer = DiLoCo(rendezvous, parameters, Algorithm(learning_rate=1.0, momentum=0.0))
        try:
            while outer.round < rounds:
                rendezvous.statistics.metrics.log(loss=losses(rendezvous.rank, outer.round + 1))
                parameters -= np.float32(rendezvous.rank + 1)
                outer.step()
        except WatchError as error:
            return error
        return parameters.tobytes()

    return together(run, work)


def jumps(rank: int, round_: int) -> float:
    """Replica 1 jumps in rounds 4 and 5, and replica 2 has NaN in round 5."""
    if rank == 1 and round_ in {4, 5}:
        return 50.0
    return math.nan if (rank, round_) == (2, 5) else 1.0


def test_an_unusual_loss_is_reported_once_in_a_spell(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    [parameters] = set(trained(run, jumps, rounds=6))
    assert isinstance(parameters, bytes)
    first, second = findings_in(run)
    assert first.words.startswith("watch.loss: replica 1 attempt 1, after round 3: its metric loss, 50, ")
    assert first.words.endswith(" (report)")
    assert (second.rank, second.round, second.text) == (2, 4, "its metric loss is nan")
    assert not run.commit(4).excluded
    ignored = WatchedRun(tmp_path / "ignored", watch=Watch(loss=Loss(then="ignore")))
    trained(ignored, jumps, rounds=6)
    assert findings_in(ignored) == []


def test_a_replica_with_an_unusual_loss_is_excluded_as_far_as_the_quorum_allows(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path, min_participants=2, watch=Watch(loss=Loss(then="exclude")))
    [parameters] = set(trained(run, jumps, rounds=6))
    assert isinstance(parameters, bytes), "the commit says who counts, so all apply the same"
    (excluded,) = run.commit(4).excluded
    assert (excluded.rank, excluded.reason[:20]) == (1, "its metric loss, 50,")
    (excluded,) = run.commit(5).excluded
    assert excluded.rank == 1, "with two suspects one of them is needed"
    assert not run.commit(6).excluded
    assert [finding.then for finding in findings_in(run)] == ["exclude", "exclude"]


def test_an_unusual_loss_ends_the_attempt_before_it_contributes(tmp_path: Path) -> None:
    for then in ("restart", "stop"):
        rules = Watch(loss=Loss.model_validate({"then": then}))
        run = WatchedRun.alone(tmp_path / then, watch=rules)
        [error] = trained(run, lambda _, round_: math.nan if round_ == 2 else 1.0, rounds=3)
        assert isinstance(error, WatchError)
        assert (error.exit_code, str(error)) == (ReplicaExit.LOSS, "its metric loss is nan")
        assert [path.name for path in (run.root / "contributions" / "00000").iterdir()] == ["00000001-000001"]


# The pace


def test_a_replica_is_slow_if_it_was_in_each_of_the_last_rounds() -> None:
    slow, usual = of_pace(8.0, 2.0, 2.2), of_pace(6.0, 2.0, 2.2)
    text = (
        "it takes 4 s for a sample, 3.8 times the median of the others, 1.05 s; in each of the last 2 rounds it took "
        "more than 3 times as long"
    )
    assert slower_than_others(Slow(rounds=2), (0, 1), commits(usual, slow, slow)) == text
    assert slower_than_others(Slow(rounds=2), (0, 2), commits(*[of_pace(8.0, 1.0, epoch=2)] * 2)) is not None
    rows = [
        (2, (0, 1), [slow, slow, usual]),
        (2, (1, 1), [slow, slow]),
        (2, (0, 1), [slow]),
        # Without the seconds of others, or of its own, none is slow.
        (1, (0, 1), [of_pace(8.0, None)]),
        (1, (0, 1), [of_pace(None, 1.0)]),
        # Another process of the rank says nothing about this one.
        (2, (0, 2), [of_pace(8.0, 1.0), of_pace(8.0, 1.0, epoch=2)]),
    ]
    for rounds, own, seen in rows:
        assert slower_than_others(Slow(rounds=rounds), own, commits(*seen)) is None, (own, seen)


def test_a_process_is_slow_if_its_peers_worked_for_less_in_each_of_the_last_rounds() -> None:
    found = slow_process(Slow(rounds=2), [(1.0, 1.0, 1.0), (2.0, 2.0, 7.0), (2.0, 2.0, 8.0)])
    assert found is not None
    assert found.startswith("process 2 of 3 has worked 8 s on the last round, 4.0 times the median of the others; ")
    nobody: list[list[tuple[float, ...]]] = [
        [(2.0, 2.0, 7.0), (2.0, 2.0, 5.0)],
        [(2.0, 7.0, 2.0), (2.0, 2.0, 7.0)],  # another one each time
        [(2.0, 2.0, 8.0)],
        [(2.0,), (2.0,)],
        [(), (2.0, 2.0, 8.0)],
    ]
    for rounds in nobody:
        assert slow_process(Slow(rounds=2), rounds) is None, rounds


def test_the_seconds_of_all_processes_of_a_replica_are_compared(tmp_path: Path) -> None:
    run = WatchedRun.alone(tmp_path, watch=Watch(slow=Slow(rounds=2)))
    group = ThreadGroup(2)

    def work(index: int) -> None:
        clock = HandClock()
        rendezvous = run.watching(group.open(replace(run.context(), clock=clock), index))
        outer = group.trainer(rendezvous, np.zeros(1_000, np.float32), Algorithm())
        rendezvous.statistics.times.ready()
        while outer.round < 2:
            clock.seconds += (2.0, 10.0)[index]
            outer.step(1.0)

    group.run(work)
    (finding,) = findings_in(run)
    assert finding.text.startswith("process 1 of 2 has worked 10 s on the last round, 5.0 times")
    assert run.commit(2).members[0].seconds == 10.0


@pytest.mark.parametrize("then", ["report", "restart"])
def test_a_slow_replica_finds_that_it_is_by_the_commits(tmp_path: Path, then: str) -> None:
    rules = Watch(slow=Slow.model_validate({"rounds": 2, "then": then}))
    run = WatchedRun(tmp_path, replicas=2, min_participants=2, watch=rules)

    def work(rank: int) -> WatchError | None:
        clock = HandClock()
        outer = DiLoCo(run.open(rank, clock=clock), np.zeros(10, np.float32), Algorithm())
        try:
            while outer.round < 2:
                clock.seconds += 40.0 if rank else 10.0
                outer.step(samples=20)
        except WatchError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        errors = [error for error in pool.map(work, range(2)) if error is not None]
    (finding,) = findings_in(run)
    assert (finding.rule, finding.rank, finding.round) == (Rule.SLOW, 1, 2)
    assert finding.text.startswith("it takes 2 s for a sample, 4.0 times")
    assert [one.seconds for one in run.commit(2).members] == [10.0, 40.0]
    assert [error.exit_code for error in errors] == ([ReplicaExit.SLOW] if then == "restart" else [])


# A hang


@dataclass
class Watched:
    """A process whose watch looks when the test says so."""

    context: RoundContext
    progress: Progress
    clock: HandClock
    watch: TrainingWatch
    inquiry: Inquiry
    ended: list[WatchError] = field(default_factory=list)

    def look_after(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.watch.look()


def watched(
    run: Run, rules: Watch, group: InnerGroup | None = None, board: LocalBoard | None = None, rank: int = 0
) -> Watched:
    clock = HandClock()
    context = replace(
        run.context(),
        group=group or InnerGroup(),
        board=board or LocalBoard(),
        timeout_seconds=1_000.0,
    )
    ended: list[WatchError] = []
    progress = Progress(clock.monotonic)
    findings = Findings(context, progress, rules, replace(CLAIM, rank=rank))
    watch = TrainingWatch(context, progress, findings, ended.append)
    return Watched(context, progress, clock, watch, watch._inquiry, ended)


HANG = Watch(hang=Hang(after_seconds=100.0), no_round=NoRound(then="ignore"))


def test_a_process_that_makes_no_step_is_reported_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    one = watched(run, HANG)
    one.progress.step()
    one.look_after(99.0)
    assert findings_in(run) == []
    one.look_after(2.0)
    one.look_after(500.0)
    (finding,) = findings_in(run)
    assert (finding.rule, finding.then, finding.rank) == (Rule.HANG, "report", 0)
    assert finding.text.startswith("no step for 101 s: the process is in step 2: ")
    one.progress.step()
    one.look_after(101.0)
    assert len(findings_in(run)) == 2, "another hang"
    assert not one.ended


def test_the_place_is_that_of_the_training_loop() -> None:
    progress, over = Progress(), threading.Event()

    def loop() -> None:
        progress.step()
        over.wait()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    wait_until("the loop waits", lambda: "threading.py" in progress.place())
    assert " in loop" in progress.place()
    over.set()
    thread.join()
    assert progress.place() == ""


def test_what_is_no_hang(tmp_path: Path) -> None:
    run = Run(tmp_path)
    one = watched(run, HANG)
    one.look_after(5_000.0)  # loads a model before its first step
    one.progress.step()
    with one.progress.waiting():
        one.look_after(2_050.0)  # in an exchange, whose two waits have 1,000 s each
    for _ in range(3):
        one.look_after(90.0)  # evaluates
        one.progress.alive()
    one.context.stops.asked.set()
    one.look_after(5_000.0)  # saves what it has
    one.context.stops.asked.clear()
    one.progress.is_over = True
    one.look_after(5_000.0)  # writes the model
    one.progress.is_over = False
    one.watch.stop()
    one.look_after(5_000.0)  # has returned
    assert findings_in(run) == []


def test_an_exchange_that_outlasts_its_own_limits_is_a_hang(tmp_path: Path) -> None:
    one = watched(run := Run(tmp_path), HANG)
    one.progress.step()
    with one.progress.waiting():
        one.look_after(2_101.0)
    (finding,) = findings_in(run)
    assert "in step 2, in an exchange: " in finding.text


def test_a_process_that_hangs_ends_with_the_word_of_the_rule(tmp_path: Path) -> None:
    for then in ("restart", "stop"):
        run = Run(tmp_path / then)
        # A missing round before that hides no hang.
        hang = Hang.model_validate({"after_seconds": 100.0, "then": then})
        one = watched(run, Watch(hang=hang, no_round=NoRound(after_seconds=60.0)))
        one.progress.step()
        one.look_after(61.0)
        assert not one.ended
        one.look_after(40.0)
        (error,) = one.ended
        assert error.exit_code is ReplicaExit.HANG
        (finding,) = [finding for finding in findings_in(run) if finding.rule is Rule.HANG]
        assert (finding.then, finding.text) == (then, str(error))


def group_of(run: Run, size: int) -> list[Watched]:
    board = LocalBoard()
    return [watched(run, HANG, InnerGroup(rank, size, rank), board) for rank in range(size)]


def test_the_process_that_hangs_is_named_by_its_peers_steps(tmp_path: Path) -> None:
    run = Run(tmp_path)
    processes = group_of(run, 3)
    for rank, process in enumerate(processes):
        process.inquiry.start()
        process.progress.step()
        if rank != 1:
            process.progress.step()
        process.clock.seconds += 200.0
    processes[0].watch.look()
    wait_until("the verdict is known to all", lambda: not any(process.inquiry.is_open for process in processes))
    for process in processes:
        process.watch.look()
    (finding,) = findings_in(run)
    assert finding.text.startswith("process 1 of 3 has made no step for 200 s: process 1 is in step 2: ")
    assert "; process 0 is in step 3: " in finding.text


def test_a_question_that_shows_no_hang_silences_no_process(tmp_path: Path) -> None:
    run = Run(tmp_path)
    first, second = group_of(run, 2)
    for process in (first, second):
        process.progress.step()
        process.clock.seconds += 80.0
    second.inquiry.start()
    assert first.inquiry.ask(seconds=0.1) == {1: ANY}, "the first one makes no answer to itself here"
    first.inquiry.conclude(is_hang=False)
    wait_until("the verdict is known", lambda: not second.inquiry.is_open)
    first.inquiry.start()
    second.look_after(30.0)
    (finding,) = findings_in(run)
    assert finding.rule is Rule.HANG


def test_a_process_that_does_not_answer_is_named() -> None:
    board = LocalBoard()
    answer = ProcessProgress(4, 700.0, waits=False, place="loop.py:3 in train")
    asking = Inquiry(board, InnerGroup(0, 2, 0), lambda: answer, lambda: None)
    asking.start()
    answers = asking.ask(seconds=0.3)
    assert answers == {0: answer}
    silent = "process 1 of 2 does not answer, and the others have made no step for 700 s: process 0 is in step 5: loop"
    assert hang_text(2, answers).startswith(silent)
    # A few of many are shown, and none that makes no steps itself is named.
    text = hang_text(8, dict.fromkeys(range(8), answer))
    assert text.startswith("none of the 8 processes has made a step for 700 s: process 0 is in step 5: loop.py:3 in ")
    assert text.endswith("; and 5 more")
    without_steps = hang_text(2, {0: answer, 1: ProcessProgress(0, 900.0, waits=False, place="b")})
    assert without_steps.startswith("process 0 of 2 has made no step for 700 s: ")


# No round


def test_without_a_round_one_replica_reports_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    replicas = [watched(run, Watch(no_round=NoRound(after_seconds=60.0)), rank=rank) for rank in range(2)]
    for one in replicas:
        one.progress.committed(7)
        one.progress.missing = "round 8 has 2 of at least 3 participants; missing: rank 1."
        one.look_after(59.0)
    assert findings_in(run) == []
    for _ in range(2):
        for one in replicas:
            one.look_after(10.0)
    (finding,) = findings_in(run)
    assert (finding.rule, finding.round) == (Rule.NO_ROUND, 7)
    assert finding.text == "no round for 69 s; round 8 has 2 of at least 3 participants; missing: rank 1."
    replicas[1].progress.committed(8)
    replicas[1].look_after(61.0)
    assert [finding.round for finding in findings_in(run)] == [7, 8]


def test_each_run_of_a_lineage_reports_that_the_same_round_is_missing(tmp_path: Path) -> None:
    for name in ("night", "night-x2"):
        run = Run(tmp_path, name=name)
        one = watched(run, Watch(no_round=NoRound(after_seconds=60.0)))
        one.progress.committed(7)
        one.look_after(61.0)
        assert [finding.round for finding in findings_in(run)] == [7], name


def test_a_run_without_rounds_is_stopped_if_the_rule_says_so(tmp_path: Path) -> None:
    run, rules = Run(tmp_path), Watch(no_round=NoRound(after_seconds=60.0, then="stop"))
    # The other processes of a replica leave rounds to the first.
    other = watched(run, rules, InnerGroup(1, 2, 1))
    other.look_after(100.0)
    assert (other.ended, findings_in(run)) == ([], [])
    one = watched(run, rules)
    one.look_after(61.0)
    assert [error.exit_code for error in one.ended] == [ReplicaExit.NO_ROUND]


# Findings


def test_findings_are_bounded_and_a_store_that_fails_loses_them_only(tmp_path: Path) -> None:
    run = Run(tmp_path)
    told = Findings(run.context(), Progress(), Watch(), CLAIM)
    for number in range(FINDINGS_MAX + 5):
        told.report(Rule.LOSS, f"{number} – é\n" + "x" * 2_000)
    found = findings_in(run)
    assert len(found) == FINDINGS_MAX
    assert all(len(finding.text) == 800 for finding in found)

    def breaks(key: str) -> None:
        raise StoreUnavailableError(key, 8, "503")

    failing = run.context(FaultyStore(run.store, Faults(before_create=breaks)))
    Findings(failing, Progress(), Watch(), CLAIM).report(Rule.SLOW, "slow")
    assert len(findings_in(run)) == FINDINGS_MAX
