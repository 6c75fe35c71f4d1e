"""The content of a manifest: Muster's own, or one of another trainer that only names its checkpoint."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import NoReturn

from pydantic import ValidationError

from muster.contract.errors import DocumentError, NewerDocumentError
from muster.contract.layout import split_s3_uri
from muster.contract.run.run_document import Manifest
from muster.control.manifest.manifest_errors import ManifestError, ManifestProblem

CHECKPOINT = "checkpoint_s3_bucket"
URI_MAX = 1024  # SageMaker: an S3Uri has at most 1,024 characters

# Fields that only Muster's own manifest has. A damaged one must not be read as one of another trainer.
_OURS = {"round", "checksum"}


# The bucket of a checkpoint that stays with AWS: customer-escrow-{account}-smtj-{id}.
_PLATFORMS = {"-smtj-": "training-job", "-hp-": "hyperpod"}


@dataclass(frozen=True)
class ResolvedManifest:
    """A job's manifest. `round` and `checksum` are None where another trainer wrote it.

    `problem` says what of it is left out, and why.
    """

    checkpoint_uri: str
    round: int | None
    checksum: str | None
    metrics: dict[str, float]
    source_uri: str
    problem: str | None = None
    ended: str = ""

    @property
    def platform(self) -> str | None:
        """On which platform the checkpoint was trained, where its place says so."""
        for text in split_s3_uri(self.checkpoint_uri):
            found = [platform for mark, platform in _PLATFORMS.items() if mark in text]
            if found:
                return found[0] if len(found) == 1 else None
        return None


def parse_manifest(body: bytes, uri: str) -> ResolvedManifest:
    """The content of the object at `uri`. A byte order mark is allowed.

    Metrics beyond the bounds of a commit's are left out: the result of a run holds those of all replicas.

    Raises:
        ManifestError: it is not JSON, or not a manifest.
    """
    text, value = _json(body, uri)
    if not isinstance(value, dict):
        _refuse(uri, f"a JSON object with {CHECKPOINT} is expected, found {_show(value)}")
    checkpoint = _checkpoint_uri(value.get(CHECKPOINT), uri)
    if not _OURS & value.keys():
        return ResolvedManifest(checkpoint, None, None, {}, uri)

    def resolved(own: Manifest, problem: str | None = None) -> ResolvedManifest:
        return ResolvedManifest(checkpoint, own.round, own.checksum, own.metrics, uri, problem, own.ended)

    try:
        return resolved(Manifest.from_json(text, uri))
    except NewerDocumentError as error:
        _refuse(uri, error.detail)
    except DocumentError as error:
        problem = error.detail
    without = {name: value[name] for name in Manifest.model_fields if name in value and name != "metrics"}
    try:
        return resolved(Manifest(**without), f"{uri}: its metrics are left out: {problem}")
    except ValidationError:
        _refuse(uri, problem)


def _json(body: bytes, uri: str) -> tuple[str, object]:
    try:
        text = body.decode("utf-8-sig")
        return text, json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        detail = "nested too deeply"
    except ValueError as error:
        detail = str(error)
    raise ManifestError(ManifestProblem.NOT_JSON, uri, detail)


def _no_constant(name: str) -> NoReturn:
    message = f"{name} is not a JSON number"
    raise ValueError(message)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        message = f"{digits[:20]} is too large a number"
        raise ValueError(message)
    return number


def _checkpoint_uri(value: object, uri: str) -> str:
    if not isinstance(value, str):
        _refuse(uri, f"{CHECKPOINT} must be an absolute s3:// URI, found {_show(value)}")
    checkpoint = value.strip()
    try:
        split_s3_uri(checkpoint)
    except ValueError:
        _refuse(uri, f"{CHECKPOINT} must be an absolute s3:// URI, found {_show(value)}")
    if len(checkpoint) > URI_MAX or not checkpoint.isprintable():
        _refuse(uri, f"{CHECKPOINT} must be at most {URI_MAX:,} printable characters, found {_show(value)}")
    return checkpoint


def _refuse(uri: str, detail: str) -> NoReturn:
    raise ManifestError(ManifestProblem.NOT_A_MANIFEST, uri, detail) from None


def _show(value: object) -> str:
    # The content of containers is not shown, because they may be nested too deeply to be written.
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
