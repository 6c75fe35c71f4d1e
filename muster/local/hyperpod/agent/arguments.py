"""The command line of hyperpodrun: torchrun's arguments that matter here, and the agent's own."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_PORT = 8080
DEFAULT_SHUTDOWN_SECONDS = 15
_ANY = str(ipaddress.IPv4Address(0))  # every address of the pod
_STDOUT = {"1", "3"}  # torch's Std: 1 standard output, 2 standard error, 3 both
ENV_POD_ADDRESS = "MUSTER_LOCAL_POD_IP"
"""The address of the pod, which is all that 0.0.0.0 means in a network of its own."""


@dataclass(frozen=True)
class Arguments:
    """What the agent was asked for."""

    processes: int
    log_dir: str | None
    redirects: str
    tee: str
    run_id: str
    role: str
    max_restarts: int
    monitor_seconds: float
    shutdown_signal: signal.Signals
    shutdown_seconds: int
    host: str
    port: int
    pre_train: tuple[str, ...]
    post_train: tuple[str, ...]
    program: tuple[str, ...]

    @property
    def log_file(self) -> bool:
        """Whether the standard output of workers is written to a file, which log rules read."""
        return self.redirects in _STDOUT or self.tee in _STDOUT


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line.

    Raises:
        SystemExit: it is wrong, or asks for what this agent does not have; the reason is on standard error.
    """
    parser = _parser()
    found = parser.parse_args(argv)
    if found.inprocess_restart:
        parser.error("--inprocess-restart: the embedded agent restarts processes only")
    least, _, most = str(found.nnodes).partition(":")
    if most and most != least:
        parser.error(f"--nnodes {found.nnodes}: an elastic range is not supported by this agent; give one number")
    return Arguments(
        processes=_processes(parser, found.nproc_per_node),
        log_dir=found.log_dir,
        redirects=found.redirects,
        tee=found.tee,
        run_id=found.rdzv_id,
        role=found.role,
        max_restarts=found.max_restarts,
        monitor_seconds=found.monitor_interval,
        shutdown_signal=signal.Signals[found.shutdown_signal],
        shutdown_seconds=found.shutdown_timeout,
        host=_address(found.server_host),
        port=found.server_port,
        pre_train=_script(found.pre_train_script, found.pre_train_args),
        post_train=_script(found.post_train_script, found.post_train_args),
        program=_program(found),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hyperpodrun", allow_abbrev=False)
    parser.add_argument("--nnodes", default="1:1")
    _with_underscores(parser, "--nproc-per-node", default="1")
    _with_underscores(parser, "--rdzv-backend", default="static")
    _with_underscores(parser, "--rdzv-endpoint", default="")
    _with_underscores(parser, "--rdzv-id", default="none")
    _with_underscores(parser, "--rdzv-conf", default="")
    parser.add_argument("--standalone", action="store_true")
    _with_underscores(parser, "--max-restarts", type=int, default=0)
    _with_underscores(parser, "--monitor-interval", type=float, default=0.1)
    _with_underscores(parser, "--start-method", default="spawn")
    parser.add_argument("--role", default="default")
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("--no-python", "--no_python", action="store_true")
    parser.add_argument("--run-path", "--run_path", action="store_true")
    _with_underscores(parser, "--log-dir", default=None)
    parser.add_argument("-r", "--redirects", default="0")
    parser.add_argument("-t", "--tee", default="0")
    _with_underscores(parser, "--node-rank", type=int, default=0)
    _with_underscores(parser, "--master-addr", default="")
    _with_underscores(parser, "--master-port", default="")
    _with_underscores(parser, "--local-addr", default=None)
    parser.add_argument("--shutdown-signal", default="SIGKILL", choices=["SIGTERM", "SIGKILL"])
    parser.add_argument("--shutdown-timeout", type=int, default=DEFAULT_SHUTDOWN_SECONDS)
    parser.add_argument("--inprocess-restart", action="store_true")
    parser.add_argument("--inprocess-timeout", type=int, default=None)
    for stage in ("pre", "post"):
        parser.add_argument(f"--{stage}-train-script")
        parser.add_argument(f"--{stage}-train-args")
    parser.add_argument("--server-host", default=_ANY)
    parser.add_argument("--server-port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--server-log-level", default="info")
    parser.add_argument("--server-shutdown-timeout", type=int, default=300)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _with_underscores(parser: argparse.ArgumentParser, name: str, **options: object) -> None:
    """Torchrun takes hyphens and underscores."""
    parser.add_argument(name, f"--{name[2:].replace('-', '_')}", **options)  # type: ignore[arg-type]


def _processes(parser: argparse.ArgumentParser, text: str) -> int:
    """Workers of a pod: a number, or torchrun's words for one on each processor or GPU."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text == "gpu":
        parser.error("--nproc-per-node gpu: this machine's pods have no GPU")
    if text not in {"cpu", "auto"}:
        parser.error(f"--nproc-per-node {text}: expected a number, cpu, gpu or auto")
    return os.cpu_count() or 1


def _address(host: str) -> str:
    """Where to listen: a pod has a network of its own, and here an address of its own on the loopback interface."""
    return os.environ.get(ENV_POD_ADDRESS, "127.0.0.1") if host in {_ANY, "::", ""} else host


def _script(path: str | None, arguments: str | None) -> tuple[str, ...]:
    """The pre- or post-train script; its arguments are one opaque string."""
    if path is None:
        return ()
    return (path,) if arguments is None else (path, arguments)


def _program(found: argparse.Namespace) -> tuple[str, ...]:
    if found.no_python:
        return (found.program, *found.arguments)
    python = os.environ.get("PYTHON_EXEC", sys.executable)
    return (python, "-u", *(["-m"] if found.module else []), found.program, *found.arguments)
