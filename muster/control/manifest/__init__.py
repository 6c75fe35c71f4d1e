"""Finding out where a job left its checkpoint: the manifest, wherever it lies, read in a stream and within bounds."""

from __future__ import annotations

from muster.control.manifest.manifest_errors import ManifestError, ManifestProblem
from muster.control.manifest.resolve import ResolvedManifest, resolve_manifest
from muster.control.manifest.search_limits import Limits

__all__ = ["Limits", "ManifestError", "ManifestProblem", "ResolvedManifest", "resolve_manifest"]
