"""Why a manifest could not be found or read, and the limits of the search for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster.contract.errors import MusterError
from muster.control.runtime.clock import TimeBudget


class ManifestProblem(StrEnum):
    """The kinds of failure. `absent` is the only one that means that the job wrote no manifest."""

    ABSENT = "absent"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    OVERSIZE = "oversize"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    UNSAFE_PATH = "unsafe-path"
    NOT_JSON = "not-json"
    NOT_A_MANIFEST = "not-a-manifest"


class ManifestError(MusterError):
    """A manifest that could not be found or read: the reason is `kind`, the place is `uri`.

    `is_passing`: S3 failed in passing, so a later search may find it.
    """

    def __init__(self, kind: ManifestProblem, uri: str, detail: str, *, is_passing: bool = False) -> None:
        self.kind = kind
        self.is_passing = is_passing
        self.uri = uri
        super().__init__(f"{uri}: {kind}: {detail}")


class BeyondLimitsError(ManifestError):
    """The search ended at a limit, before it was seen whether there is a manifest."""

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(ManifestProblem.OVERSIZE, uri, detail)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Limits:
    """The limits of one search. A job's output is not trusted, so everything is limited.

    The defaults allow an archive with a large model in front of its manifest, and several replicas within the 900 s of
    a Lambda invocation.
    """

    manifest_bytes: int = 64 * KIB  # of a manifest; parsed, it takes fifty times as much memory
    header_bytes: int = MIB  # of a header in an archive that extends a member's name
    read_bytes: int = 4 * GIB  # of an archive, compressed
    unpacked_bytes: int = 16 * GIB  # of an archive; deflate packs up to 1:1032
    headers: int = 100_000  # of an archive
    seconds: float = 120.0  # for all layouts together; a read that hangs adds the client's own read timeout
    interruptions: int = 3  # of one object's transfer
    model_bytes: int = 16 * MIB  # of an archive with a model, compressed: most of them are large, and have no manifest


def check(budget: TimeBudget, uri: str) -> None:
    """Raise ManifestError (timeout) once the time budget is spent."""
    if budget.is_spent:
        raise ManifestError(ManifestProblem.TIMEOUT, uri, "the time limit for finding the manifest was reached")
