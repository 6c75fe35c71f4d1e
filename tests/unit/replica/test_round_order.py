"""The order of a round's steps, where another order would lose or double something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from muster.replica.errors import FencedError
from muster.replica.metrics import Metrics
from muster.replica.rounds.claims import claim_rank
from muster.replica.rounds.contribution import contribute, make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire import keys
from tests.support.peers import RUN, Faults, FaultyStore, Killed, Run, gradient_of, kill_at


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, replicas=1, min_participants=1)


def test_a_superseded_process_uploads_no_contribution(run: Run) -> None:
    older = claim_rank(run.store, RUN, 0, 1)
    claim_rank(run.store, RUN, 0, 2)
    mine = make_contribution(run.context(), older, 1, LocalUpdate(gradient_of(0, 1, run.count), 1.0), {})
    with pytest.raises(FencedError):
        contribute(run.context(), older, mine)
    assert not run.store.exists(mine.key)


@pytest.mark.parametrize("committed", [False, True])
def test_a_replicas_own_state_is_saved_before_its_contribution_can_be_seen(run: Run, committed: bool) -> None:
    if committed:
        # Too late to contribute: the state is saved all the same, because the data were used.
        run.start(0).join()
    saved: list[str] = []
    store = FaultyStore(run.store, Faults(before_create=kill_at(keys.CONTRIBUTIONS)))
    rendezvous = Rendezvous.open(run.context(store), 0, 2, Metrics())
    update = LocalUpdate(np.ones(run.count, np.float32), 1.0, before_giving=lambda: saved.append("saved"))
    if committed:
        rendezvous.exchange(1, update)
    else:
        with pytest.raises(Killed):
            rendezvous.exchange(1, update)
    assert saved == ["saved"]
