"""A run that continues another finds its rounds deleted: it ends with an error, and does not begin anew in silence."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import AlgorithmError, HistoryGoneError
from muster.replica.statistics.metrics import Metrics
from muster.replica.wire import rendezvous_keys
from tests.support.peers import Run, all_ended


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    """A run of two replicas and four rounds that has ended."""
    run = Run(tmp_path / "store", replicas=2, min_participants=2)
    peers = run.start_all()
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    return run


def join(run: Run, rounds_before: int = 0) -> DiLoCo:
    context = replace(run.context(), rounds_before=rounds_before)
    rendezvous = Rendezvous.open(context, rank=0, attempt=2, metrics=Metrics())
    return DiLoCo(rendezvous, np.zeros(run.count, np.float32), Algorithm(codec=run.codec))


def test_a_continuation_refuses_when_commits_are_gone_and_claims_no_rank(trained: Run) -> None:
    for gone in ([1], [4], [1, 2, 3], [1, 2, 3, 4]):
        commits = {
            path: path.read_bytes() for path in (trained.root / rendezvous_keys.commit(round_) for round_ in gone)
        }
        for path in commits:
            path.unlink()
        with pytest.raises(HistoryGoneError, match="continues round 4"):
            join(trained, rounds_before=4)
        assert not trained.store.exists(rendezvous_keys.claim(0, 2)), gone
        for path, body in commits.items():
            path.write_bytes(body)
    # With its history it continues.
    assert join(trained, rounds_before=4).round == 4


def test_the_initial_state_is_not_made_a_second_time_for_rounds_that_were_committed(trained: Run) -> None:
    # The means of all rounds are still there: applied to other parameters they would give a model that nobody trained.
    shutil.rmtree(trained.root / "manifests")
    shutil.rmtree(trained.root / "snapshots")
    with pytest.raises(HistoryGoneError, match="4 rounds are committed"):
        join(trained)
    assert not trained.store.exists(rendezvous_keys.manifest(0))


def test_a_run_of_an_older_version_is_continued_with_the_defaults_of_later_settings(trained: Run) -> None:
    path = trained.root / rendezvous_keys.OPTIONS
    options = json.loads(path.read_bytes())
    del options["settings"]["alpha"], options["settings"]["eager"]
    path.write_text(json.dumps(options))
    assert join(trained, rounds_before=4).round == 4
    context = replace(trained.context(), rounds_before=4)
    rendezvous = Rendezvous.open(context, rank=1, attempt=2, metrics=Metrics())
    with pytest.raises(AlgorithmError, match=r"eager is True here and False in the run"):
        DiLoCo(rendezvous, np.zeros(trained.count, np.float32), Algorithm(sync_every=1, eager=True))
