"""A sweep side by side: its values, what each replica has reached, and the rounds of each."""

from dataclasses import replace

from muster.contract.run.commit import Commit
from muster.contract.run.job_details import FinalMetric, JobDetails
from muster.contract.run.time_use import TimeUse
from muster.report.page_contents import make_page
from muster.report.sweep import SweepRounds, own_rounds_max, sweep_view
from muster.report.time_split import summed
from tests.support.round_commits import commit_of, member
from tests.support.sample_sweeps import LOST, sample_sweep


def commit(round_: int, **fields: object) -> Commit:
    members = [member(0, weight=2.0, metrics={"loss": 1 / round_})]
    return commit_of(members, run="run", round=round_, committed_at="2026-01-01T00:00:00Z", **fields)


def test_the_values_and_the_last_metrics_are_side_by_side() -> None:
    view = make_page(sample_sweep(4, 12)).sweep
    assert view is not None
    assert view.names == ("kwargs.optimizer.lr", "kwargs.schedule", "kwargs.seed")
    assert view.short == ("lr", "schedule", "seed")
    assert view.values[1] == ("0.0002", "cosine", "1")
    assert view.metrics == ("accuracy", "loss")
    assert view.last[LOST] == (None, None)
    assert view.best == (2, 2)


def test_of_a_program_the_metrics_are_those_of_its_log() -> None:
    run = sample_sweep(2, 3)
    details = JobDetails(metrics=(FinalMetric(name="eval_loss", value=0.25, at="2026-01-01T00:00:00Z"),))
    first, second = run.replicas
    read = first.attempts[-1].model_copy(update={"details": details})
    first = first.model_copy(update={"metrics": {}, "attempts": (*first.attempts[:-1], read)})
    view = sweep_view({"lr": [1, 2]}, [first, second.model_copy(update={"metrics": {}})])
    assert view is not None
    assert (view.metrics, view.last, view.best) == (("eval_loss",), ((0.25,), (None,)), (None,))


def test_each_replica_has_its_own_line() -> None:
    rounds = make_page(sample_sweep(4, 12)).rounds
    assert (rounds.numbers, rounds.rates, rounds.pace, rounds.times) == (tuple(range(1, 13)), (), None, None)
    assert (rounds.expected, rounds.samples) == (60, 64.0 * (12 + 11 + 10 + 4))
    use = TimeUse(rounds=3, spent=(5,), last=(3,), held_up=(2,))
    own = commit(3, absent=(1,), last=0, time_use=use).of_rank(4)
    assert [member.rank for member in own.members] == [4]
    assert (own.absent, own.last, own.time_use) == ((), None, TimeUse(rounds=3, spent=(5,)))


def test_rounds_are_added_in_any_order_and_ranks_that_the_run_lacks_are_left_out() -> None:
    assert [own_rounds_max(replicas) for replicas in (1, 64, 100)] == [500, 312, 200]
    table = SweepRounds(2, "2026-01-01T00:00:00Z")
    for rank, round_ in ((1, 1), (1, 2), (0, 1), (7, 1)):
        table.add(commit(round_).of_rank(rank))
    assert table.latest == 3
    view = table.view(unread=1)
    assert (view.members, view.total, view.unread) == ((2, 1), 2, 1)
    assert SweepRounds(2, "2026-01-01T00:00:00Z").view().total == 0


def test_the_time_of_all_replicas_is_added_up() -> None:
    uses = [TimeUse(rounds=2, spent=(1, 2)), None, TimeUse(rounds=5, spent=(10,))]
    assert summed(uses) == TimeUse(rounds=5, spent=(11, 2))
    assert summed([None]) is None


def test_what_differs_is_named_in_the_summary() -> None:
    run = sample_sweep(4, 12)
    facts = {fact.label: (fact.value, fact.note) for fact in make_page(run).facts}
    assert facts["Sweep"] == ("lr, schedule, seed", "by rank")
    assert facts["Rounds"] == ("12 of 60", "of the replica that is furthest")
    program = run.plan.spec.model_copy(update={"trainer": None})
    of_program = replace(run, plan=run.plan.model_copy(update={"spec": program}))
    assert "Rounds" not in {fact.label for fact in make_page(of_program).facts}
