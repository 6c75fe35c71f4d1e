"""Where Muster's files lie, and where it builds: inside a clone, or below the user's cache where it is installed."""

from __future__ import annotations

import os
from pathlib import Path

import muster

PACKAGE = Path(muster.__file__).parent
"""The package's folder. All that a deployment needs of Muster is in it."""
WORKFLOW = PACKAGE / "statemachine" / "run.asl.json"
CLONE = PACKAGE.parent if (PACKAGE.parent / "cdk.json").is_file() else None
"""The clone that the package is part of; None where Muster is installed."""


def cache_folder() -> Path:
    """Muster's folder in the user's cache, as the XDG base directories name it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "muster"


def build_folder() -> Path:
    """Where archives are built. Never beside the package of an installation, which may belong to another user."""
    return cache_folder() / muster.__version__ if CLONE is None else CLONE / "build"
