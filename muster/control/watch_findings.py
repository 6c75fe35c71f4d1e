"""The findings of the replicas' watch in the settlement: they add words to the result, and decide nothing."""

from __future__ import annotations

from itertools import islice

from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.finding import FINDING_BYTES_MAX, FINDINGS_READ_MAX, Finding, FindingDocument, is_finding
from muster.control.active_run import ActiveRun
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import in_parallel


def find_findings(run: ActiveRun) -> tuple[Finding, ...]:
    """The findings of this run, by round; those of many that come first in the bucket. Empty if they cannot be read."""
    try:
        return _read_findings(run)
    except Exception:
        logger.exception("the findings are left out of the result")
        return ()


def _read_findings(run: ActiveRun) -> tuple[Finding, ...]:
    plan = run.plan
    if not plan.spec.trains_apart:
        return _findings_at(run, plan.shared_layout, plan.spec.replicas)
    by_rank = in_parallel(lambda rank: _findings_at(run, plan.rounds_layout(rank), 1), range(plan.spec.replicas))
    found = [one.model_copy(update={"rank": rank}) for rank, some in enumerate(by_rank) for one in some]
    return tuple(sorted(found, key=lambda finding: finding.round)[:FINDINGS_READ_MAX])


def _findings_at(run: ActiveRun, layout: RunLayout, replicas: int) -> tuple[Finding, ...]:
    """Those that so many replicas, which train together, have written at `layout`."""
    store = run.documents.store
    listed = islice(store.keys(layout.findings), FINDINGS_READ_MAX)
    keys = [key for key in listed if is_finding(key.removeprefix(layout.commits))]
    found: list[Finding] = []
    for key in keys:
        try:
            body = store.read_bounded(key, FINDING_BYTES_MAX) or b""
            document = FindingDocument.from_json(body, store.uri(key))
        except DocumentError as error:
            # Replicas wrote it.
            logger.warning("a finding is left out of the result", extra={"error": str(error)})
            continue
        if document.run == run.plan.run and document.finding.rank < replicas:
            found.append(document.finding)
    return tuple(sorted(found, key=lambda finding: finding.round))
