"""Why a manifest could not be found or read: one error with a fixed list of kinds."""

from __future__ import annotations

from enum import StrEnum

from muster.contract.errors import MusterError


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
    """A manifest that could not be found or read: the reason is `kind`, the place is `uri`."""

    def __init__(self, kind: ManifestProblem, uri: str, detail: str) -> None:
        self.kind = kind
        self.uri = uri
        super().__init__(f"{uri}: {kind}: {detail}")


class BeyondLimitsError(ManifestError):
    """The search ended at a limit, before it was seen whether there is a manifest."""

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(ManifestProblem.OVERSIZE, uri, detail)
