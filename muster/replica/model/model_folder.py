"""Writes the model of a run: its files, then the manifest, then what the trainer measures on it."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from muster.contract.errors import MusterError
from muster.contract.layout import MODEL_FOLDER, model_evaluation_name, model_manifest_name
from muster.contract.run.last_lines import without_resolved
from muster.contract.run.model import FILES_MAX, ModelEvaluation, ModelFile, ModelManifest
from muster.contract.spec.metric_sinks import METRIC_NAME_WORDS
from muster.replica.model.final_model import Evaluate, FinalModel
from muster.replica.model.model_writers import become_writer, check_writer, is_last_model, others_train_on
from muster.replica.model.safetensors_layout import index_of, weight_files
from muster.replica.model.weights_writer import ModelDestination, OpenFile, TensorSource, WeightsWriter
from muster.replica.parts.link import by_first, jointly
from muster.replica.replica_errors import ParametersError, TrainerError
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.commit_store import read_last_revision
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.statistics.metrics import METRICS_MAX, NAME
from muster.replica.store.transport import Store, create_once

# Of a file beside the weights, which may be large as well.
_PIECE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Wishes:
    """What a front end leaves: the trainer's wishes, and the tensors as they are when this is called."""

    final_model: FinalModel
    tensors: Callable[[], TensorSource]


@dataclass(frozen=True)
class ModelFolder:
    """The model after the last round of a replica, which has given its rank up with `claim`.

    All processes of the replica make the same calls.
    """

    context: RoundContext
    results: Store
    claim: Claim
    round: int
    checksum: str

    def leave(self, wishes: Wishes) -> None:
        """Write what is missing of the model and its evaluation, if it is up to this replica.

        Raises:
            FencedError: a newer process of this rank writes the model.
            ParametersError, TrainerError: the trainer's files or its `evaluate` fail.
            RendezvousError, StoreDeniedError, StoreUnavailableError
        """
        link, final = self.context.link, wishes.final_model
        number = by_first(link, lambda: self._number(final))
        if number is None:
            return
        if not by_first(link, lambda: self.results.exists(self._manifest)):
            self._write(wishes, number)
        if final.evaluate is not None:
            metrics = jointly(link, partial(_measured, final.evaluate))
            by_first(link, lambda: self._store_evaluation(metrics))

    @property
    def _manifest(self) -> str:
        return model_manifest_name(self.round)

    def _number(self, final: FinalModel) -> int | None:
        """This replica's number among the writers; None if it has nothing to write."""
        needed = [self._manifest] if final.evaluate is None else [self._manifest, model_evaluation_name(self.round)]
        if all(self.results.exists(name) for name in needed):
            return None
        commit = read_last_revision(self.context, self.round) if self.round else None
        context, claim = self.context, self.claim
        if context.quorum.is_elastic and context.on_early_finish is not None:
            number = become_writer(context, claim, self.round)
            return number if number is not None and is_last_model(context, claim.rank, commit) else None
        if others_train_on(context, claim.rank, commit):
            return None
        return become_writer(context, claim, self.round)

    def _write(self, wishes: Wishes, number: int) -> None:
        context, final = self.context, wishes.final_model
        target = ModelDestination(self.results, MODEL_FOLDER, lambda: check_writer(context, self.claim, number))
        beside = by_first(context.link, lambda: _beside(final, target))
        source = wishes.tensors()
        files = weight_files(source.tensors, final.kind, source.made_for)
        weights = WeightsWriter(source, files, context.link).write(target)

        def seal() -> None:
            index = index_of(files)
            listed = [] if index is None else [_stored(target, index[0], [index[1]])]
            manifest = ModelManifest(
                run=context.trained_by,
                round=self.round,
                kind=final.kind,
                checksum=self.checksum,
                rank=self.claim.rank,
                files=tuple(sorted([*weights, *listed, *beside], key=lambda file: file.name)),
            )
            target.check()
            create_once(self.results, self._manifest, manifest.to_json())
            log.info(
                "round=%d event=model files=%d bytes=%d uri=%s",
                *(self.round, len(manifest.files), manifest.total_bytes, self.results.uri(MODEL_FOLDER)),
            )

        by_first(context.link, seal)

    def _store_evaluation(self, metrics: Mapping[str, float]) -> None:
        evaluation = ModelEvaluation(run=self.context.trained_by, round=self.round, metrics=dict(metrics))
        create_once(self.results, model_evaluation_name(self.round), evaluation.to_json())
        log.info("round=%d event=evaluated %s", self.round, " ".join(f"{k}={v:.6g}" for k, v in metrics.items()))


def _beside(final: FinalModel, target: ModelDestination) -> list[ModelFile]:
    """Write the trainer's own files."""
    with final.files() as files:
        if len(files) >= FILES_MAX // 2:
            message = f"FinalModel.beside has {len(files):,} files; allowed: fewer than {FILES_MAX // 2:,}."
            raise ParametersError(message)
        return [_copied(target, name, path) for name, path in files.items()]


def _copied(target: ModelDestination, name: str, path: Path) -> ModelFile:
    try:
        with path.open("rb") as file:
            return _stored(target, name, iter(partial(file.read, _PIECE_BYTES), b""))
    except OSError as error:
        message = f"FinalModel.beside: {path} cannot be read: {error.strerror}."
        raise ParametersError(message) from None


def _stored(target: ModelDestination, name: str, pieces: Iterable[bytes]) -> ModelFile:
    file = OpenFile(target, name)
    try:
        for piece in pieces:
            file.write(piece)
        return file.close()
    except BaseException:
        file.discard()
        raise


def _measured(evaluate: Evaluate) -> dict[str, float]:
    """What the trainer measures; numbers that are not finite are left out.

    Raises:
        TrainerError: it fails, or returns something other than metrics.
    """
    try:
        found = {name: float(value) for name, value in evaluate().items()}
    except MusterError:
        raise
    except Exception as error:
        # The log of a failed attempt is kept with the run.
        sys.stderr.write(without_resolved(traceback.format_exc(), os.environ))
        message = f"evaluate failed: {traceback.format_exception_only(error)[-1].strip()}"
        raise TrainerError(message) from None
    wrong = [name for name in found if NAME.fullmatch(name) is None]
    if wrong or len(found) > METRICS_MAX:
        what = f"the name {wrong[0]!r}" if wrong else f"{len(found)} metrics"
        allowed = f"{METRICS_MAX} metrics, with names of at most 48 {METRIC_NAME_WORDS}"
        message = f"evaluate returned {what}; allowed: {allowed}."
        raise TrainerError(message)
    return {name: value for name, value in found.items() if math.isfinite(value)}
