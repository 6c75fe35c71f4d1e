"""The exit codes of `muster`, for scripts."""

from __future__ import annotations

from enum import IntEnum

from muster.client.errors import InputError
from muster.contract.errors import MusterError, RunNameTakenError, SpecError


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    RUN_FAILED = 1  # the run that was watched, or whose result was read, did not succeed
    BAD_INPUT = 2  # another spec, name or option is needed
    TROUBLE = 3  # the cloud, or the way to it: credentials, network, stack, permissions
    INTERRUPTED = 130  # Ctrl-C


def exit_code(error: MusterError) -> ExitCode:
    """The code of an error."""
    if isinstance(error, InputError | SpecError | RunNameTakenError):
        return ExitCode.BAD_INPUT
    return ExitCode.TROUBLE
