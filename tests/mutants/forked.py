"""Runs tests of a copy of the tree, each time in a new process.

The processes are forked from one that has imported what the tests need of others, and nothing of ours: that takes most
of the time of a short test.
"""

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.source_patch import ROOT

PASSED, FAILED = 0, 1
"""pytest's exit codes; others mean that no test ran."""
SECONDS_MAX = 300.0
"""A mutant may make a test wait for ever."""
_IMPORTED_BEFORE = (
    "pytest",
    "hypothesis",
    "numpy",
    "boto3",
    "botocore.auth",
    "botocore.httpsession",
    "botocore.endpoint",
    "pydantic",
    "yaml",
    "cryptography.x509",
    "typer",
    "aws_lambda_powertools",
)
_processes = multiprocessing.get_context("forkserver")


def run_tests(
    copy: Path, tests: Sequence[str], *, seconds_max: float | None = SECONDS_MAX, report: Path | None = None
) -> tuple[int, str]:
    """Run tests in a copy; pytest's exit code and what it printed. What takes longer than `seconds_max` has failed.

    Args:
        report: where pytest writes how long each test took, as JUnit's XML.
    """
    _processes.set_forkserver_preload(list(_IMPORTED_BEFORE))
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder, "printed")
        options = [] if report is None else [f"--junitxml={report}"]
        process = _processes.Process(target=_main, args=(copy, printed, [*options, *tests]))
        process.start()
        assert process.pid is not None
        process.join(seconds_max)
        code = process.exitcode
        # The process leads a group: with it ends whatever a test has left behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        if code is None:
            return FAILED, "timed out"
        return code, printed.read_text(encoding="utf-8", errors="replace")


def _main(copy: Path, printed: Path, arguments: Sequence[str]) -> None:
    os.setsid()
    gc.freeze()  # what was imported before stays: pytest's searches for garbage need not look at it
    output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(copy)
    # What led here is the original's; everything that is imported from now on is the copy's.
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path).resolve() != ROOT)]
    os.environ.update(PYTHONPATH=str(copy), TMPDIR=str(printed.parent))
    tempfile.tempdir = None
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*options, *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without waiting for threads that a failed test has left
