"""The command line of hyperpodrun: of torchrun's arguments and the agent's own those that Muster gives."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

DEFAULT_PORT = 8080
DEFAULT_SHUTDOWN_SECONDS = 15
ENV_POD_ADDRESS = "MUSTER_LOCAL_POD_IP"
"""The address of the pod, which is all that an agent without --server-host listens on."""


class Arguments(argparse.Namespace):
    """What the agent was asked for."""

    log_dir: str | None
    keeps_output: bool
    """Whether the standard output of workers is written to a file, which log rules read."""
    rdzv_id: str
    role: str
    monitor_interval: float
    shutdown_signal: signal.Signals
    shutdown_timeout: int
    server_host: str
    server_port: int
    program: tuple[str, ...]


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line.

    Raises:
        SystemExit: it is wrong, or asks for what this agent does not have; the reason is on standard error.
    """
    parser = argparse.ArgumentParser(prog="hyperpodrun", allow_abbrev=False)
    parser.add_argument("--nnodes", type=int, default=1)  # NNODES of the environment, and /start, say how many
    parser.add_argument("--nproc-per-node", choices=["1"], default="1")
    parser.add_argument("--rdzv-backend", default="static")
    parser.add_argument("--rdzv-id", default="none")
    parser.add_argument("--monitor-interval", type=float, default=0.1)
    parser.add_argument("--role", default="default")
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("--log-dir", default=None)
    parser.add_argument("--tee", choices=["0", "3"], default="0")
    parser.add_argument("--shutdown-signal", dest="signal_name", default="SIGKILL", choices=["SIGTERM", "SIGKILL"])
    parser.add_argument("--shutdown-timeout", type=int, default=DEFAULT_SHUTDOWN_SECONDS)
    parser.add_argument("--server-host", default=os.environ.get(ENV_POD_ADDRESS, "127.0.0.1"))
    parser.add_argument("--server-port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--server-log-level", default="info")
    parser.add_argument("file", metavar="program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    found = parser.parse_args(argv, Arguments())
    found.keeps_output = found.tee == "3"
    found.shutdown_signal = signal.Signals[found.signal_name]
    python = () if found.no_python else (os.environ.get("PYTHON_EXEC", sys.executable), "-u")
    found.program = (*python, found.file, *found.arguments)
    return found
