"""The model that a run leaves, as its result describes it: read from what a replica wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.model import (
    EVALUATION_BYTES_MAX,
    MANIFEST_BYTES_MAX,
    ModelEvaluation,
    ModelManifest,
    ModelResult,
)
from muster.contract.run.result import ReplicaOutcome, ReplicaResult
from muster.control.active_run import ActiveRun
from muster.control.runtime.parallel import in_parallel

# A model is written after the last round of the replicas that trained longest. More rounds are looked at only where
# the last ones of some replicas were without the others.
_ROUNDS_MAX = 4


@dataclass(frozen=True)
class FoundModel:
    """The model of a run, or why it is missing; both None for a run that leaves none."""

    model: ModelResult | None = None
    problem: str | None = None


def with_own_models(run: ActiveRun, replicas: Sequence[ReplicaResult]) -> list[ReplicaResult]:
    """The replicas of a sweep, each with the model that it has written; `problem` says why one is missing."""

    def with_own(replica: ReplicaResult) -> ReplicaResult:
        found = _find(run, run.plan.rank_layout(replica.rank), [replica], replica.round or 0)
        missing = None if found.problem is None else f"no model: {found.problem}"
        return replica.model_copy(update={"model": found.model, "problem": replica.problem or missing})

    return in_parallel(with_own, replicas)


def find_model(run: ActiveRun, replicas: Sequence[ReplicaResult], committed: int) -> FoundModel:
    """The newest model that the replicas of the run have written together.

    Args:
        replicas: with what their manifests say.
        committed: the last committed round of the lineage.
    """
    return _find(run, run.documents.layout, replicas, committed) if run.plan.spec.has_trainer else FoundModel()


def _find(run: ActiveRun, layout: RunLayout, replicas: Sequence[ReplicaResult], committed: int) -> FoundModel:
    ended = {replica.round for replica in replicas if replica.round is not None}
    problem: str | None = None
    rounds = ended if committed == 0 else {committed, *ended}
    for round_ in sorted(rounds, reverse=True)[:_ROUNDS_MAX]:
        try:
            found = _model(run, layout, round_)
        except DocumentError as error:
            problem = problem or str(error)
            continue
        if found is not None:
            return FoundModel(found, problem)
    if problem is None and any(replica.outcome is ReplicaOutcome.SUCCEEDED for replica in replicas) and ended:
        problem = (
            f"the replica that had to write it ended before; `muster continue {run.plan.run}` lets another one do it"
        )
    return FoundModel(None, problem)


def _model(run: ActiveRun, layout: RunLayout, round_: int) -> ModelResult | None:
    store = run.documents.store
    key = layout.model_manifest(round_)
    body = store.read_bounded(key, MANIFEST_BYTES_MAX)
    if body is None:
        return None
    manifest = ModelManifest.from_json(body, store.uri(key))
    return ModelResult(
        uri=store.uri(layout.model),
        kind=manifest.kind,
        round=round_,
        bytes=manifest.total_bytes,
        files=len(manifest.files),
        checksum=manifest.checksum,
        manifest=store.uri(key),
        manifest_sha256=hashlib.sha256(body).hexdigest(),
        evaluation=_evaluation(run, layout, round_),
    )


def _evaluation(run: ActiveRun, layout: RunLayout, round_: int) -> dict[str, float]:
    key = layout.model_evaluation(round_)
    body = run.documents.store.read_bounded(key, EVALUATION_BYTES_MAX)
    if body is None:
        return {}
    try:
        return ModelEvaluation.from_json(body, run.documents.store.uri(key)).metrics
    except DocumentError:
        return {}
