"""The rounds of a lineage as its rendezvous holds them: how many are committed, and whether they are still there."""

from __future__ import annotations

from muster.contract.layout import RunLayout
from muster.contract.run.commit import last_round
from muster.control.aws.store import DocumentStore


def committed_rounds(store: DocumentStore, layout: RunLayout) -> int:
    """The last committed round; `layout` is that of the first run of the lineage."""
    return last_round(lambda round_: store.exists(layout.commit(round_)))


def has_history(store: DocumentStore, layout: RunLayout, rounds: int) -> bool:
    """Whether the commits of round 1 and of round `rounds` are still stored: a continuation begins with both."""
    return all(store.exists(layout.commit(round_)) for round_ in {1, rounds} - {0} if round_ <= rounds)
