"""What a round tells of each replica's update: its norm, its cosine with the others', what the codec loses."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from muster.contract.exits import ReplicaExit
from muster.contract.run.commit import Commit, Member
from muster.contract.run.round_values import CODEC_ERROR, RESIDUAL_SHARE, UPDATE_COSINE, UPDATE_METRICS, UPDATE_NORM
from muster.contract.spec.watch_rules import Divergence, Rule, Slow, Watch
from muster.options.watch.replica.round_rules import divergent
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import WatchError
from muster.replica.rounds.update_sample import SAMPLED_MAX, pulls, sampled
from muster.replica.statistics.metrics import METRICS_MAX
from muster.replica.statistics.statistics import OwnUpdate
from muster.replica.wire.binary_format import Floats
from tests.support.groups import ThreadGroup
from tests.support.peers import Run, gradient_of, together
from tests.support.round_commits import commit_of, member
from tests.support.watched_run import WatchedRun, findings_in

WEIGHTS = (1.0, 2.0, 5.0)
PLAIN = Algorithm(learning_rate=1.0, momentum=0.0)
Given = Callable[[int, int], Floats]


def alike(rank: int, round_: int, count: int = 1_000) -> Floats:
    """Updates of which a third of the square is common to all replicas."""
    return gradient_of(9, round_, count) + np.float32(1.4) * gradient_of(rank, round_, count)


def train(
    run: Run, given: Given, algorithm: Algorithm = PLAIN, rounds: Callable[[int], int] = lambda _: 2
) -> list[WatchError | None]:
    """Let each rank move its parameters for so many rounds by what is `given`; the errors that ended them."""

    def work(rendezvous: Rendezvous) -> WatchError | None:
        rank = rendezvous.rank
        parameters = np.zeros(given(0, 1).size, np.float32)
        outer = DiLoCo(rendezvous, parameters, algorithm)
        try:
            while outer.round < rounds(rank):
                parameters -= given(rank, outer.round + 1)
                outer.step(WEIGHTS[rank % len(WEIGHTS)])
        except WatchError as error:
            return error
        return None

    return together(run, work)


def cosine(one: Floats, other: Floats) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


@pytest.mark.parametrize("average", ["mean", "rda"])
def test_every_replica_says_how_its_update_agrees_with_the_others(tmp_path: Path, average: str) -> None:
    run = Run(tmp_path)
    train(run, alike, replace(PLAIN, average=average))
    updates = [alike(rank, 1) for rank in range(3)]
    # With RDA all are sent with the same norm.
    norms = [float(np.linalg.norm(update)) if average == "mean" else 1.0 for update in updates]
    pulls = [weight * norm for weight, norm in zip(WEIGHTS, norms, strict=True)]
    found = [one.metrics for one in run.commit(2).members]
    for rank, update in enumerate(updates):
        others = [other for other in range(3) if other != rank]
        mean = np.average([cosine(update, updates[other]) for other in others], weights=[pulls[one] for one in others])
        assert found[rank] == {
            UPDATE_NORM: pytest.approx(np.linalg.norm(update), rel=1e-4),
            UPDATE_COSINE: pytest.approx(mean, abs=1e-4),
            "utilisation": found[rank]["utilisation"],
        }
        assert run.commit(1).members[rank].norm == pytest.approx(np.linalg.norm(update), rel=1e-4)
    # The average of these is that of all pairs.
    weights = [one * (sum(pulls) - one) for one in pulls]
    pairs = [(cosine(updates[a], updates[b]), pulls[a] * pulls[b]) for a, b in combinations(range(3), 2)]
    of_pairs = np.average([one for one, _ in pairs], weights=[weight for _, weight in pairs])
    assert np.average([one[UPDATE_COSINE] for one in found], weights=weights) == pytest.approx(of_pairs, abs=1e-4)


@pytest.mark.parametrize("codec", ["int4", "topk2-64"])
def test_a_codec_says_what_it_loses_and_what_waits_in_the_residual(tmp_path: Path, codec: str) -> None:
    run = Run.alone(tmp_path)
    train(run, alike, replace(PLAIN, codec=codec))
    [one] = run.commit(2).members
    update = alike(0, 1)
    lost = one.metrics[CODEC_ERROR]
    assert {"int4": 0.05, "topk2-64": 0.5}[codec] < lost < {"int4": 0.2, "topk2-64": 0.9}[codec]
    # In the first round the residual is the error, and nothing else was encoded.
    assert one.metrics[RESIDUAL_SHARE] == pytest.approx(lost, rel=1e-4)
    assert one.metrics[UPDATE_NORM] == pytest.approx(np.linalg.norm(update), rel=1e-4)
    assert UPDATE_COSINE not in one.metrics, "there are no others"


def test_of_a_large_model_a_sample_tells_it(tmp_path: Path) -> None:
    count = 20 * SAMPLED_MAX + 7
    values = gradient_of(0, 1, count)
    assert sampled(values).size <= SAMPLED_MAX
    run = Run(tmp_path, replicas=2, min_participants=2)
    train(run, lambda rank, round_: alike(rank, round_, count), replace(PLAIN, codec="int8"))
    updates = [alike(rank, 1, count) for rank in range(2)]
    for update, one in zip(updates, run.commit(2).members, strict=True):
        assert one.metrics[UPDATE_NORM] == pytest.approx(np.linalg.norm(update), rel=0.03)
        assert one.metrics[UPDATE_COSINE] == pytest.approx(cosine(*updates), abs=0.03)


def test_the_processes_of_a_replica_measure_its_update_together(tmp_path: Path) -> None:
    found = []
    for size in (1, 3):
        run, group = Run.alone(tmp_path / str(size)), ThreadGroup(size)

        def work(index: int, run: Run = run, group: ThreadGroup = group) -> None:
            parameters = np.zeros(200_000, np.float32)
            outer = group.trainer(group.open(run.context(), index), parameters, replace(PLAIN, codec="int4"))
            while outer.round < 2:
                parameters -= gradient_of(0, outer.round + 1, parameters.size)
                outer.step(1.0)

        group.run(work)
        found.append({name: run.commit(2).members[0].metrics[name] for name in UPDATE_METRICS[1:]})
    assert found[1] == pytest.approx(found[0], rel=0.02)


def test_the_metrics_of_a_trainer_come_first_in_a_header(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    metrics = run.open().statistics.metrics
    metrics.log(**dict.fromkeys(UPDATE_METRICS, 0.5), utilisation=0.9)
    metrics.log(**{f"metric{number}": 1.0 for number in range(METRICS_MAX - 1)})
    sent, logged = metrics.sent(1)
    assert UPDATE_COSINE in sent
    assert len(sent) == len(logged) == METRICS_MAX + 1


# The rule


def rounds_of(*rounds: Sequence[tuple[float | None, float | None]]) -> list[Commit]:
    """Commits with the members' norms in each, and their cosines of the round before."""

    def one(rank: int, norm: float | None, cosine: float | None) -> Member:
        values = {} if cosine is None else {"metrics": {UPDATE_COSINE: cosine}, "logged": (1,)}
        return member(rank, norm=norm, **values)

    return [
        commit_of([one(rank, *values) for rank, values in enumerate(members)], round=number)
        for number, members in enumerate(rounds, start=1)
    ]


def test_an_update_diverges_if_it_did_in_each_of_the_last_rounds() -> None:
    rule = Divergence(rounds=2, factor=3.0)
    own = [OwnUpdate(0, 9.0, -0.2), OwnUpdate(1, 9.0, -0.3), OwnUpdate(2, 8.0, 0.5)]
    calm = [replace(one, cosine=0.1) for one in own]
    usual, small = [(1.0, 0.4), (2.0, 0.6), (2.2, 0.5)], [(1.0, 0.4), (9.0, 0.6), (9.0, 0.5)]
    large = (
        "the norm of its update, 8, is 3.8 times the median of the others, 2.1; in each of the last 2 rounds it was "
    )
    away = (
        "the cosine of its update with the others' is -0.3, of theirs with each other 0.55; in each of the last 2 "
        "rounds "
    )
    assert divergent(rule, 0, own, rounds_of(usual, usual)) == f"{large}more than 3 times as large"
    assert divergent(rule, 0, own, rounds_of(small, small)) == f"{away}it was below 0, and theirs was not"
    # A round that was made without it tells as well.
    assert divergent(rule, 3, own, rounds_of(usual, usual)) is not None
    rows: list[tuple[Sequence[OwnUpdate], list[Commit]]] = [
        (own, rounds_of(usual)),
        (calm, rounds_of(small, usual)),
        (own[1:], rounds_of(small, small)),
        # All disagree, as they do where the training has come to its end.
        (own, rounds_of(*[[(1.0, 0.4), (9.0, -0.6), (9.0, -0.5)]] * 2)),
        # Of two replicas neither is known to be the one; nor is one whose others say nothing.
        (own, rounds_of(*[usual[:2]] * 2)),
        (own, rounds_of(*[[(1.0, 0.4), (None, None), (None, None)]] * 2)),
        (own, rounds_of(*[[(1.0, 0.4), (0.0, None), (0.0, None)]] * 2)),
    ]
    for number, (updates, recent) in enumerate(rows):
        assert divergent(rule, 0, updates, recent) is None, number
    assert divergent(rule, 0, [OwnUpdate(1, None, None), OwnUpdate(2, math.inf, None)], rounds_of(usual, usual)) is None


def watch_of(rule: Divergence) -> Watch:
    """The rule alone: how long the threads of one machine take says nothing of a replica."""
    return Watch(divergence=rule, slow=Slow(then="ignore"))


def turned(rank: int, round_: int) -> Floats:
    """In rounds 3 to 6 replica 3 goes where the others come from."""
    update = alike(rank, round_)
    return -update if rank == 3 and 3 <= round_ <= 6 else update


def test_a_replica_that_diverges_is_excluded_until_it_agrees_again(tmp_path: Path) -> None:
    rule = Divergence(rounds=2, then="exclude")
    run = WatchedRun(tmp_path, replicas=4, min_participants=2, watch=watch_of(rule))
    train(run, turned, rounds=lambda _: 10)
    excluded = {number: [one.rank for one in run.commit(number).excluded] for number in range(1, 11)}
    # Its cosine in round 4 is compared once the others have said theirs, which they do in round 5.
    assert excluded == {number: [3] if number in {6, 7, 8} else [] for number in range(1, 11)}
    (finding,) = findings_in(run)
    assert (finding.rule, finding.rank, finding.then, finding.round) == (Rule.DIVERGENCE, 3, "exclude", 5)
    assert finding.text.startswith("the cosine of its update with the others' is -0.")


@pytest.mark.parametrize("average", ["mean", "rda"])
@pytest.mark.parametrize("times", [-1.0, -2.0, -4.5])
@pytest.mark.parametrize("replicas", [3, 4, 6])
def test_one_that_goes_the_other_way_is_found_among_few(
    tmp_path: Path, replicas: int, times: float, average: str
) -> None:
    run = WatchedRun(tmp_path, replicas=replicas, min_participants=2, watch=watch_of(Divergence(rounds=2)))

    def given(rank: int, round_: int) -> Floats:
        # Rank 2 has the largest weight.
        return np.float32(times if rank == 2 else 1) * alike(rank, round_)

    train(run, given, replace(PLAIN, average=average), rounds=lambda _: 5)
    assert {(one.rule, one.rank) for one in findings_in(run)} == {(Rule.DIVERGENCE, 2)}
    [text, *_] = [one.text for one in findings_in(run)]
    of_the_others = float(text.partition("with each other ")[2].partition(";")[0])
    # A third of the square of their updates is common to all.
    assert of_the_others == pytest.approx(0.34, abs=0.15)


def test_what_the_others_say_of_themselves_makes_no_replica_diverge_alone_and_ends_none() -> None:
    rule, own = Divergence(rounds=1), -0.5
    for norms in ((1.0, 1e308, 1.0, 1e308), (1.0, 5e-324, 0.0, 0.0), (5e-324, 1e308, 1e308, 1e308)):
        members = [member(rank, norm=norm, weight=1e15) for rank, norm in enumerate(norms)]
        pulled = pulls(commit_of(members, round=1), are_scaled=False)
        for cosine in (1e308, -1e308):
            said = [(1.0, own), (1.0, cosine), (1.0, -0.4), (1.0, -0.4)]
            [recent] = [one.model_copy(update={"round": 2}) for one in rounds_of(said)]
            assert divergent(rule, 0, [OwnUpdate(1, 1.0, own, pulled)], [recent]) is None, norms


@pytest.mark.parametrize("replicas", [3, 4, 6])
def test_where_all_go_apart_none_diverges(tmp_path: Path, replicas: int) -> None:
    run = WatchedRun(tmp_path, replicas=replicas, min_participants=2, watch=watch_of(Divergence(rounds=2)))

    def given(rank: int, _: int) -> Floats:
        # Each pair has a cosine of -1 / (replicas - 1).
        update = np.full(60, -1 / replicas, np.float32)
        update[rank::replicas] += 1
        return update

    train(run, given, rounds=lambda _: 5)
    assert run.commit(5).members[0].metrics[UPDATE_COSINE] == pytest.approx(-1 / (replicas - 1), abs=1e-4)
    assert findings_in(run) == []


@pytest.mark.parametrize("outlier_factor", [0.0, 5.0])
def test_one_that_sends_more_because_it_trains_longer_is_no_outlier(tmp_path: Path, outlier_factor: float) -> None:
    rule = Divergence(rounds=1, cosine=-0.5)
    run = WatchedRun(tmp_path, replicas=3, min_participants=2, watch=watch_of(rule))
    algorithm = replace(PLAIN, codec="topk2-16", outlier_factor=outlier_factor)

    def work(rendezvous: Rendezvous) -> None:
        parameters = np.zeros(1_000, np.float32)
        outer = DiLoCo(rendezvous, parameters, algorithm)
        while outer.round < 42:
            if outer.round == 40 and rendezvous.rank:
                # As if it had joined now: what was not sent before waits in rank 0 alone.
                outer._synchronizer._feedback.restore(np.zeros(1_000, np.float32))
            parameters -= gradient_of(0, 1, 1_000)
            outer.step(1.0)

    together(run, work)
    old, *new = run.commit(41).members
    assert old.norm == pytest.approx(np.linalg.norm(gradient_of(0, 1, 1_000)), rel=1e-4)
    assert (old.sent or 0) > 5 * max(one.sent or 0 for one in new)
    assert [run.commit(number).excluded for number in (41, 42)] == [(), ()]
    assert findings_in(run) == []


@pytest.mark.parametrize("then", ["report", "restart"])
def test_a_replica_whose_update_is_far_too_large_reports_it_or_ends(tmp_path: Path, then: str) -> None:
    rules = Watch.model_validate({"divergence": {"rounds": 2, "then": then}})
    run = WatchedRun(tmp_path, replicas=3, min_participants=2, watch=rules)

    def given(rank: int, round_: int) -> Floats:
        return np.float32(7 if rank == 1 else 1) * alike(rank, round_)

    # The others do not wait for the one that ends before it contributes to the third round.
    ended = train(run, given, rounds=lambda rank: 3 if rank == 1 or then == "report" else 2)
    errors = [error for error in ended if error is not None]
    (finding,) = findings_in(run)
    assert (finding.rule, finding.rank, finding.round) == (Rule.DIVERGENCE, 1, 2)
    assert finding.text.startswith("the norm of its update, ")
    assert [error.exit_code for error in errors] == ([ReplicaExit.DIVERGENCE] if then == "restart" else [])
