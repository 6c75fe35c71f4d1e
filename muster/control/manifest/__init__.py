"""Finding a job's manifest, which names its checkpoint. It is read as a stream and within limits."""

from __future__ import annotations

from muster.control.manifest.manifest_errors import ManifestError, ManifestProblem
from muster.control.manifest.manifest_search import ResolvedManifest, resolve_manifest
from muster.control.manifest.search_limits import Limits

__all__ = ["Limits", "ManifestError", "ManifestProblem", "ResolvedManifest", "resolve_manifest"]
