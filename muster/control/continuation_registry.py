"""Whether a run may continue one that has ended, and registering it. A run has at most one continuation."""

from __future__ import annotations

from muster.contract.errors import SpecError, StatedProblem
from muster.contract.run.continuation import Continuation, lineage_after, next_run
from muster.contract.run.plan import Lineage, Plan
from muster.contract.run.result import Result
from muster.contract.spec.elastic import snapshot_writers
from muster.contract.spec.spec import Spec
from muster.control.aws.store import DocumentStore
from muster.control.documents import RunDocuments
from muster.control.runtime.parallel import in_parallel


def require_lineage(store: DocumentStore, spec: Spec, continuation: Continuation) -> Lineage:
    """The lineage of `continuation` as the run that continues `spec.resume_from`. Writes nothing.

    Raises:
        SpecError: there is no such run, it has not ended, it has another continuation, the numbers of replicas differ,
            one of the two is elastic and their snapshots differ, their snapshot_rounds differ, or its rounds were
            deleted.
    """
    parent, run = spec.resume_from or "", continuation.run
    documents = RunDocuments(store, parent)
    plan, result = documents.plan(), documents.result()
    if plan is None or parent == run:
        statement = f"{parent} is not a run of this stack, or it is this run itself"
        raise _refused(statement, "check the name")
    if result is None:
        statement = f"{parent} has not ended"
        raise _refused(statement, f"wait until it ends, or cancel it: muster cancel {parent}")
    fence = documents.fence()
    # The continuation policy leaves `name` to the execution; `muster continue` writes it.
    if fence is not None and fence.is_cancellation and spec.name is None and _is_next(plan, result, run):
        statement = f"{parent} was cancelled while its continuation policy started {run}"
        raise _refused(statement, "to continue it all the same, start a run of another name with the same spec")
    if plan.spec.replicas != spec.replicas:
        statement = f"{parent} has {plan.spec.replicas} replicas, and this spec has {spec.replicas}"
        raise _refused(statement, f"write replicas: {plan.spec.replicas}, or leave resume_from out")
    if _writers(plan.spec) != _writers(spec):
        was, number = plan.spec.elastic is not None, spec.replicas
        kinds = ("elastic", "not elastic") if was else ("not elastic", "elastic")
        statement = f"{parent} is {kinds[0]} and this spec {kinds[1]}: the snapshots of {number} replicas differ"
        form = f"{{min: …, start: …, max: {number}}}" if was else number
        raise _refused(statement, f"write replicas: {form}, or leave resume_from out")
    if plan.spec.sweep != spec.sweep:
        statement = f"{parent} has other values in its sweep"
        raise _refused(statement, "write the same values, or leave resume_from out")
    lineage = lineage_after(plan, result)
    every, has_rounds = plan.spec.rendezvous.snapshot_rounds, any((lineage.rounds_before, *lineage.rounds_by_rank))
    if has_rounds and every != spec.rendezvous.snapshot_rounds:
        statement = f"{parent} has rendezvous.snapshot_rounds {every}, and this spec {spec.rendezvous.snapshot_rounds}"
        raise _refused(statement, f"write snapshot_rounds: {every}, or leave resume_from out")
    if not _has_history(store, plan, lineage):
        statement = f"the rounds of {parent} were deleted from {store.uri(plan.shared_layout.rendezvous)}"
        raise _refused(statement, "leave resume_from out, to train from the beginning")
    registered = store.document(Continuation, documents.layout.continued_by)
    _refuse_another(parent, registered or continuation, continuation)
    return lineage


def register_continuation(store: DocumentStore, parent: str, continuation: Continuation) -> None:
    """Make `continuation` the one run that continues `parent`. Idempotent.

    Raises:
        SpecError: another run continues it.
    """
    _refuse_another(parent, RunDocuments(store, parent).name_continuation(continuation), continuation)


def _refuse_another(parent: str, registered: Continuation, continuation: Continuation) -> None:
    if registered != continuation:
        statement = f"{parent} is already continued by {registered.run}"
        raise _refused(statement, f"continue {registered.run} once it has ended")


def _writers(spec: Spec) -> int:
    return snapshot_writers(spec.replicas, elastic=spec.elastic is not None)


def _is_next(parent: Plan, result: Result, run: str) -> bool:
    wanted = next_run(parent, result)
    return wanted is not None and wanted[0] == run


def _refused(statement: str, remedy: str) -> SpecError:
    return SpecError([StatedProblem("resume_from", statement, remedy)])


def _has_history(store: DocumentStore, parent: Plan, lineage: Lineage) -> bool:
    """Whether the commits of the first round and of the last one are still stored: a continuation begins with both."""

    def has(rank: int) -> bool:
        commit, rounds = parent.rounds_layout(rank).commit, lineage.rounds_of(rank)
        return all(store.exists(commit(round_)) for round_ in {1, rounds} - {0} if round_ <= rounds)

    return all(in_parallel(has, range(len(lineage.rounds_by_rank) or 1)))
