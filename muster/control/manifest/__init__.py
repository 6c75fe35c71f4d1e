"""Finding a job's manifest, which names its checkpoint. It is read as a stream and within limits."""

from __future__ import annotations

from muster.control.manifest.manifest_content import ResolvedManifest
from muster.control.manifest.manifest_errors import Limits, ManifestError, ManifestProblem
from muster.control.manifest.manifest_search import resolve_manifest

__all__ = ["Limits", "ManifestError", "ManifestProblem", "ResolvedManifest", "resolve_manifest"]
