"""Becoming the continuation of a run that has ended: the one run that goes on from its last committed round."""

from __future__ import annotations

from muster.contract.errors import Problem, SpecError
from muster.contract.run.continuation import descend
from muster.contract.run.lineage import Continuation, Lineage
from muster.contract.spec.spec import Spec
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments


def succeed(store: Store, spec: Spec, continued_by: Continuation) -> Lineage:
    """Make `continued_by` the one run that goes on where `spec.resume_from` has ended; asked again, it still is.

    Raises:
        SpecError: there is no such run, it goes on, it has another continued_by, or the two do not fit together.
    """
    parent = spec.resume_from or ""
    documents = RunDocuments(store, parent)
    plan, result = documents.plan(), documents.result()
    if plan is None or parent == continued_by.run:
        raise _refused(parent, "which is no other run of this stack", "check the name")
    if result is None:
        raise _refused(parent, "which has no result yet", "wait for its end, or cancel it first")
    if plan.spec.replicas != spec.replicas:
        found = f"which has {plan.spec.replicas} replicas"
        raise _refused(parent, found, f"write replicas: {plan.spec.replicas}, or begin anew without resume_from")
    named = documents.name_continuation(continued_by)
    if named != continued_by:
        raise _refused(parent, f"which {named.run} has resumed already", f"resume {named.run} once it has ended")
    return descend(plan, result)


def _refused(parent: str, found: str, remedy: str) -> SpecError:
    return SpecError([Problem("resume_from", f"{parent!r}, {found}", remedy)])
