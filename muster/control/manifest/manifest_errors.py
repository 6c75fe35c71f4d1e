"""Why a manifest could not be resolved: one error, a closed list of kinds."""

from __future__ import annotations

from enum import StrEnum

from muster.contract.errors import MusterError


class ManifestProblem(StrEnum):
    """The ways of failing. `absent` is the only one that says that the job left nothing behind."""

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
    """A manifest that could not be resolved; `kind` says why, `uri` where."""

    def __init__(self, kind: ManifestProblem, uri: str, detail: str) -> None:
        self.kind = kind
        self.uri = uri
        super().__init__(f"{uri}: {kind}: {detail}")
