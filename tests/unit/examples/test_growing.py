"""The example of a run that grows from two replicas to eight."""

import threading
from dataclasses import replace
from pathlib import Path

from examples.digits import growing_trainer
from examples.digits.dataset import load
from muster.contract.spec.spec_reader import load_spec_text, parse_spec
from muster.options.shards.replica.shards import DataShards
from muster.replica.rounds.round_context import RoundContext, Stops
from muster.replica.store.transport import Store
from tests.support.contexts import context_of
from tests.support.peers import Run
from tests.support.source_patch import ROOT
from tests.support.waiting import wait_until

EPOCHS, SHARDS = 30, 60


class ElasticRun(Run):
    """Its first round expects two of the seats."""

    def context(self, store: Store | None = None, stops: Stops | None = None) -> RoundContext:
        context = super().context(store, stops)
        return replace(context, quorum=replace(context.quorum, start=2))


def test_it_starts_with_two_replicas_and_ends_with_eight_that_train_each_shard_once_an_epoch(tmp_path: Path) -> None:
    spec = parse_spec(load_spec_text((ROOT / "examples/digits/growing.yaml").read_text(encoding="utf-8")))
    assert spec.elastic is not None
    run = ElasticRun(tmp_path / "run", replicas=spec.replicas, min_participants=spec.elastic.min)
    errors: list[BaseException] = []
    assert isinstance(context_of(Run.alone(tmp_path / "other")).shards(SHARDS), DataShards)

    def work(rank: int) -> None:
        try:
            growing_trainer.train(context_of(run, rank), epochs=EPOCHS, shards=SHARDS, seconds_per_step=0.02)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(spec.replicas)]
    for thread in threads[: spec.elastic.start]:
        thread.start()
    wait_until("a few rounds of two", lambda: has_committed(run, 5))
    for thread in threads[spec.elastic.start :]:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    commits = [run.commit(round_) for round_ in range(1, 200) if has_committed(run, round_)]
    assert len(commits[0].members) == 2
    assert max(len(commit.members) for commit in commits) == 8
    after = commits[-1].data_after
    assert after is not None
    assert (after.epoch, after.done, after.counted, after.begun) == (EPOCHS, 0, (), ())
    # What the weights count is what was trained: each example, so often.
    assert sum(member.weight for commit in commits for member in commit.members) == EPOCHS * len(load()[0])


def has_committed(run: Run, round_: int) -> bool:
    try:
        return run.commit(round_) is not None
    except FileNotFoundError:
        return False
