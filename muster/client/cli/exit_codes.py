"""The exit codes of `muster`, for scripts."""

from __future__ import annotations

from enum import IntEnum

from muster.client.client_errors import InputError
from muster.contract.errors import MusterError, RunNameTakenError, SettingsError, SpecError


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    RUN_FAILED = 1
    BAD_INPUT = 2
    TROUBLE = 3
    INTERRUPTED = 130  # 128 and SIGINT, as in every shell


MEANINGS = {
    ExitCode.OK: "done; a run that was watched, or whose status or result was asked for, has not failed",
    ExitCode.RUN_FAILED: "that run ended as `failed` or `stopped`; or a check of `verify` has failed",
    ExitCode.BAD_INPUT: "bad input: a spec, a settings file, a name or an option",
    ExitCode.TROUBLE: "AWS cannot be reached or refuses: credentials, permissions, network, no stack",
    ExitCode.INTERRUPTED: "interrupted; a run that was watched continues",
}
"""What each code means."""


def exit_code(error: MusterError) -> ExitCode:
    """The code of an error."""
    if isinstance(error, InputError | SpecError | SettingsError | RunNameTakenError):
        return ExitCode.BAD_INPUT
    return ExitCode.TROUBLE
