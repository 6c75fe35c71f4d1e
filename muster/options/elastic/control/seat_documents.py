"""Reading the seats of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.errors import ConfigurationError
from muster.contract.layout import RunLayout
from muster.contract.training.ranks import show_ranks
from muster.options.elastic.contract.seats import Seats, seats_key

if TYPE_CHECKING:
    from muster.contract.run.plan import Plan
    from muster.contract.spec.elastic import Elastic
    from muster.contract.spec.spec import Spec
    from muster.control.active_run import ActiveRun
    from muster.control.aws.store import DocumentStore
    from muster.control.documents import PlannedRun


def elastic_of(spec: Spec) -> Elastic:
    """The section `elastic` of an elastic run's spec."""
    if spec.elastic is None:
        message = "the run has a fixed number of replicas"
        raise ConfigurationError(message)
    return spec.elastic


def first_seats(run: PlannedRun) -> Seats:
    """The seats of a run whose document is not written."""
    return Seats.first(run.plan.run, elastic_of(run.plan.spec).start)


def seats_of(run: PlannedRun) -> Seats:
    """The seats as they stand now."""
    return run.documents.store.document(Seats, seats_key(run.plan.run)) or first_seats(run)


def lost_ranks(run: ActiveRun) -> set[int]:
    """The ranks of lost replicas."""
    return _marked(run.documents.store, run.documents.layout.lost)


def planned(store: DocumentStore, plan: Plan) -> Seats:
    """The seats with which a run begins: those of the run that it continues, as far as it has them."""
    elastic, replicas = elastic_of(plan.spec), plan.spec.replicas
    seats = Seats.first(plan.run, elastic.start)
    parent = None if plan.lineage is None else plan.lineage.parent
    before = None if parent is None else store.document(Seats, seats_key(parent))
    if parent is None or before is None:
        return seats
    wanted = max(elastic.min, min(before.wanted, replicas))
    sound = before.open_ranks - _marked(store, RunLayout(parent).lost)
    ranks = sorted(range(replicas), key=lambda rank: (rank not in sound, rank))[:wanted]
    return seats.model_copy(update={"wanted": wanted, "open": show_ranks(sorted(ranks))})


def _marked(store: DocumentStore, prefix: str) -> set[int]:
    return {int(key.removeprefix(prefix)) for key in store.keys(prefix)}
