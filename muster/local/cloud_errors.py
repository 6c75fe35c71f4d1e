"""The errors of the embedded cloud itself. One line each: what was found, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster.contract.errors import MusterError


class LocalCloudError(MusterError):
    """Root of the embedded cloud's own errors."""


class PortInUseError(LocalCloudError):
    """Another process uses the port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} on 127.0.0.1 is in use by another process: choose another with --port (0 for any free port)."
        )


class NotRunningError(LocalCloudError):
    """No embedded cloud was started in this state directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"No embedded cloud is running with its state in {directory}: start one with `muster local up`."
        )


class OtherEndpointError(LocalCloudError):
    """The shell calls an embedded cloud whose state is not known."""

    def __init__(self, endpoint: str, directory: Path) -> None:
        super().__init__(
            f"This shell uses {endpoint} (AWS_ENDPOINT_URL), but no embedded cloud with its state in {directory} runs "
            'there: name its state directory with --state, or point the shell at a running one: eval "$(muster local '
            'env)".'
        )


class UnknownPlaceError(LocalCloudError):
    """The embedded cloud has no such place."""

    def __init__(self, place: str, places: Sequence[str]) -> None:
        super().__init__(f"The embedded cloud has no place {place!r}: it has {', '.join(places)}.")


class DeadCloudError(LocalCloudError):
    """The state directory names a cloud that does not answer."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        super().__init__(
            f"The embedded cloud at {endpoint} (state in {directory}) does not answer: "
            "remove its state with `muster local down`, then start one with `muster local up`; "
            f"the log is {directory / 'local.log'}."
        )


class AlreadyRunningError(LocalCloudError):
    """A second `up` in the same state directory."""

    def __init__(self, directory: Path, endpoint: str, pid: int) -> None:
        super().__init__(
            f"The embedded cloud is already running at {endpoint} (process {pid}, state in {directory}): "
            "use it, stop it with `muster local down`, or start another with its own --state directory."
        )


class StartError(LocalCloudError):
    """The service ended before it was ready."""

    def __init__(self, detail: str, log: Path) -> None:
        super().__init__(f"The embedded cloud did not start: {detail} (log: {log}).")


class AdminError(LocalCloudError):
    """The admin interface refused a request."""

    def __init__(self, method: str, path: str, answer: str) -> None:
        super().__init__(f"The embedded cloud refused {method} {path}: {answer}")


class CommandNotFoundError(LocalCloudError):
    """`exec` was given a program that does not exist."""

    def __init__(self, program: str) -> None:
        super().__init__(f"No program named {program!r} on the PATH: check the spelling after `--`.")
