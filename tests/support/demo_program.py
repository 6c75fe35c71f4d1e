"""The demos as programs: a process each, with its files in a folder."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.source_patch import ROOT


def start_demo(folder: Path, *arguments: str, of: str = "digits.demo", **environment: str) -> subprocess.Popen[str]:
    """Start a demo of `examples`; `environment` is added to this process's."""
    return subprocess.Popen(
        [sys.executable, "-m", f"examples.{of}", "--folder", str(folder), *arguments],
        cwd=ROOT,
        # A user's shell may point anywhere: the demo must not follow.
        env={**os.environ, "AWS_PROFILE": "nobody", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
