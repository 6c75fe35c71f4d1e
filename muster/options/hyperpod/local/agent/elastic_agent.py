"""The agent of one pod: its loop follows the worker, and obeys what the operator has asked for."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from string import Template
from typing import Any

from muster.options.hyperpod.local.agent.agent_state import AgentState, StateBox
from muster.options.hyperpod.local.agent.arguments import Arguments
from muster.options.hyperpod.local.agent.log_rules import BAD, AgentLogRule, LogState, LogWatch
from muster.options.hyperpod.local.agent.worker_process import Worker

_log = logging.getLogger("hyperpodrun")
_CONFIG = Path("input") / "config"
_RULES = "on the following log monitoring rules and corresponding"
_WORDS = {
    LogState.HANGING: (
        "LogHang_",
        f"The job is hanging (not receiving required logs) {_RULES} last matched log lines: ",
    ),
    LogState.SLOW: ("LogSlow_", f"The job is slowed (logs outside of acceptable thresholds) {_RULES} log lines: "),
}


class Group(Enum):
    """The state of the worker."""

    INIT = auto()
    HEALTHY = auto()
    SUCCEEDED = auto()
    UNHEALTHY = auto()
    FAILED = auto()


class Terminated(BaseException):
    """A signal that ends the agent has arrived while the worker runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@dataclass(frozen=True)
class Ranks:
    """What /start says of the job: who is who in it."""

    rank: int
    nodes: int
    faults: int
    master_addr: str
    master_port: int
    rules: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Ranks:
        """Read the body.

        Raises:
            KeyError, ValueError, TypeError: it is none.
        """
        address = str(body["master_addr"])
        if not address:
            message = "Empty master_addr received from operator"
            raise ValueError(message)
        rules = tuple(body.get("log_monitoring_configuration") or ())
        numbers = (int(body["rank"]), int(body["nnodes"]), int(body["faultCount"]))
        return cls(*numbers, address, int(body["master_port"] or 0), rules)


class Agent:
    """The state machine. Its `run` is called by the main thread, all else by those of requests."""

    def __init__(self, arguments: Arguments, base: Path) -> None:
        """`base` stands for /opt/ml."""
        self._arguments = arguments
        self._config = base / _CONFIG / "pod_resourceconfig.json"
        self._config.parent.mkdir(parents=True, exist_ok=True)
        root = arguments.log_dir or tempfile.mkdtemp(prefix="torchelastic_")
        Path(root).mkdir(parents=True, exist_ok=True)
        self._logs = Path(tempfile.mkdtemp(prefix=f"{arguments.rdzv_id}_", dir=root))
        self._box = StateBox()
        self._lock = threading.Lock()
        self._ranks: Ranks | None = None
        self._stop: Mapping[str, Any] = {}
        self._group = Group.INIT
        self._worker: Worker | None = None
        self._failure = ""
        self._watch: LogWatch | None = None
        self._box.set(AgentState.READY)

    # --- requests ------------------------------------------------------------------------------

    def start(self, body: Mapping[str, Any]) -> None:
        """POST /start. An agent that is not READY stays as it is, and says so in its log alone.

        Raises:
            KeyError, ValueError, TypeError: the body says no ranks.
        """
        ranks = Ranks.of(body)
        with self._lock:
            self._ranks = ranks
            if body.get("ipVersion") is not None and body.get("rankIps") is not None:
                self._write_addresses(ranks, body)
        self._box.set(AgentState.RUNNING, reason="Running")

    def stop(self, body: Mapping[str, Any]) -> None:
        """POST /stop: the loop ends the worker, and is READY again."""
        self._stop = body
        self._box.set(AgentState.STOPPING)

    def shut_down(self, _: Mapping[str, Any]) -> None:
        """POST /shutdown."""
        self._box.set(AgentState.SHUTDOWN)

    def status(self) -> dict[str, str]:
        """GET /status."""
        return self._box.document()

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Follow the worker until /shutdown. Returns the exit code.

        Raises:
            Terminated: a signal has ended the agent; the worker has ended.
        """
        try:
            while self._box.state is not AgentState.SHUTDOWN:
                time.sleep(self._arguments.monitor_interval)
                self._group = self._monitor()
                self._act()
        except Terminated as end:
            self._end_worker(end.signal, self._arguments.shutdown_timeout)
            raise
        _log.info("Shutting down agent...")
        self._end_worker(signal.SIGTERM, self._arguments.shutdown_timeout)
        return 1 if self._group in {Group.FAILED, Group.UNHEALTHY} else 0

    def _monitor(self) -> Group:
        if self._worker is None or self._group is Group.FAILED:
            return self._group
        self._failure = self._worker.failure
        if self._failure:
            self._worker.stop(self._arguments.shutdown_signal, self._arguments.shutdown_timeout)
            return Group.FAILED
        if self._watch is not None and self._watch.found[0] in BAD:
            return Group.UNHEALTHY
        return Group.SUCCEEDED if self._worker.has_ended else Group.HEALTHY

    def _act(self) -> None:
        state = self._box.state
        if state is AgentState.STOPPING:
            self._stop_worker()
        elif state is not AgentState.RUNNING:
            return
        elif self._group in {Group.UNHEALTHY, Group.FAILED}:
            self._fault()
        elif self._group is Group.INIT:
            self._begin()
        elif self._group is Group.SUCCEEDED:
            _log.info("worker group successfully finished.")
            self._box.set(AgentState.COMPLETED)
            self._end_watch()

    def _begin(self) -> None:
        with self._lock:
            ranks = self._ranks
        if ranks is None:
            message = "RUNNING follows /start alone"
            raise RuntimeError(message)
        variables = self._variables(ranks)
        prefix = self._prefix(variables) if self._arguments.keeps_output else None
        self._worker = Worker(self._arguments.program, variables, self._logs / f"attempt_{ranks.faults}", prefix)
        self._group = Group.HEALTHY
        self._follow(ranks)

    def _prefix(self, own: Mapping[str, str]) -> str:
        """Before each line of the worker on the console; TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE replaces torch's own."""
        template = os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE") or "[${role_name}${local_rank}]:"
        values = {name.lower(): value for name, value in own.items()}
        return Template(template).safe_substitute(values, restart_count=own["JOB_RESTART_COUNT"])

    def _variables(self, ranks: Ranks) -> dict[str, str]:
        rank, world, restarts = str(ranks.rank), str(ranks.nodes), str(ranks.faults)
        return {
            "LOCAL_RANK": "0",
            **dict.fromkeys(("RANK", "GROUP_RANK", "ROLE_RANK"), rank),
            "ROLE_NAME": self._arguments.role,
            "LOCAL_WORLD_SIZE": "1",
            **dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), world),
            "MASTER_ADDR": ranks.master_addr,
            "MASTER_PORT": str(ranks.master_port),
            **dict.fromkeys(("JOB_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"), restarts),
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": self._arguments.rdzv_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            "HYPERPOD_SIGNAL_COORDINATION": os.environ.get("HYPERPOD_SIGNAL_COORDINATION", "disabled"),
        }

    def _follow(self, ranks: Ranks) -> None:
        """Let the log rules read the output of the worker."""
        try:
            rules = [AgentLogRule(rule) for rule in ranks.rules]
        except (ValueError, KeyError, TypeError) as error:
            _log.error("Failed to load Log Monitoring Configuration: %s", error)
            return
        if rules:
            self._watch = LogWatch(rules, self._logs / f"attempt_{ranks.faults}" / "0" / "stdout.log")

    def _fault(self) -> None:
        state, rules = (LogState.WAITING, {}) if self._watch is None else self._watch.found
        _log.error("worker group changed to %s state.", self._group.name)
        if state in BAD:
            reason, words = _WORDS[state]
            self._box.set(AgentState.FAULTED, f"{reason}{next(iter(rules))}", f"{words}{rules}")
            return
        self._box.set(
            AgentState.FAULTED, "WorkerCrash", f"A training worker process has crashed:\n    {self._failure}\n"
        )

    def _stop_worker(self) -> None:
        _log.info("Stopping workers...")
        arguments = self._arguments
        number = signal.SIGUSR1 if self._stop.get("is_graceful") else arguments.shutdown_signal
        self._end_worker(number, self._stop.get("timeout") or arguments.shutdown_timeout)
        self._group, self._failure = Group.INIT, ""
        self._box.set(AgentState.READY)

    def _end_worker(self, number: signal.Signals, seconds: float) -> None:
        if self._worker is not None:
            self._worker.stop(number, seconds)
            self._worker = None
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _write_addresses(self, ranks: Ranks, body: Mapping[str, Any]) -> None:
        """pod_resourceconfig.json: the address of each rank."""
        known: list[str | None] = [None] * ranks.nodes
        for entry in body["rankIps"]:
            known[int(entry["rank"])] = entry["ip"]
        document = {"ips": known, "current_pod_ip": known[ranks.rank], "ips_timestamp": body["ipVersion"]}
        partial = self._config.with_suffix(".json.tmp")
        partial.write_text(json.dumps(document))
        partial.replace(self._config)
