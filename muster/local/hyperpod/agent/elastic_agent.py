"""The agent of one pod: its loop follows the workers, and obeys what the operator has asked for."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from pathlib import Path
from string import Template
from typing import Any

from muster.local.hyperpod.agent.arguments import Arguments
from muster.local.hyperpod.agent.bodies import Ranks, Start, Stop
from muster.local.hyperpod.agent.log_rules import BAD, LogState, LogWatch, Rule
from muster.local.hyperpod.agent.states import AGENT_VERSION, AgentState, StateBox
from muster.local.hyperpod.agent.workers import Failure, Output, Workers

_log = logging.getLogger("hyperpodrun")
_CONFIG = Path("input") / "config"
_RULES = "on the following log monitoring rules and corresponding"
_WORDS = {
    LogState.HANGING: (
        "LogHang_",
        f"The job is hanging (not receiving required logs) {_RULES} last matched log lines: ",
    ),
    LogState.SLOW: ("LogSlow_", f"The job is slowed (logs outside of acceptable thresholds) {_RULES} log lines: "),
    LogState.FAULTED: (
        "LogFault_",
        f"The job detected a fault indicating log message {_RULES.replace('on', 'for', 1)} log lines: ",
    ),
}


class Group(Enum):
    """The state of the workers."""

    INIT = auto()
    HEALTHY = auto()
    SUCCEEDED = auto()
    UNHEALTHY = auto()
    FAILED = auto()


class Terminated(BaseException):
    """A signal that ends the agent has arrived while workers run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class Agent:
    """The state machine. Its `run` is called by the main thread, all else by those of requests."""

    def __init__(self, arguments: Arguments, base: Path) -> None:
        """`base` stands for /opt/ml. Raises KeyError without NNODES in the environment, as the agent does."""
        self._arguments = arguments
        self._nodes = int(os.environ["NNODES"])
        self._config = base / _CONFIG / "pod_resourceconfig.json"
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self._ip_version = _json(self._config).get("ips_timestamp")
        root = arguments.log_dir or tempfile.mkdtemp(prefix="torchelastic_")
        Path(root).mkdir(parents=True, exist_ok=True)
        self._logs = Path(tempfile.mkdtemp(prefix=f"{arguments.run_id}_", dir=root))
        self._box = StateBox()
        self._lock = threading.Lock()
        self._ranks: Ranks | None = None
        self._assigned = -1
        self._stop = Stop()
        self._can_start = False
        self._group = Group.INIT
        self._workers: Workers | None = None
        self._failures: list[Failure] = []
        self._watch: LogWatch | None = None
        self._stages = self._run_stages()
        self._box.set(AgentState.READY)

    # --- requests ------------------------------------------------------------------------------

    def start(self, request: Start) -> None:
        """POST /start. An agent that is not READY stays as it is, and says so in its log alone."""
        self._box.set(AgentState.RUNNING, reason="Running")
        self.update(request)
        self._assigned = request.rank
        self._can_start = True

    def stop(self, request: Stop) -> None:
        """POST /stop: the loop ends the workers, and is READY again."""
        self._stop = request
        self._box.set(AgentState.STOPPING)
        self._can_start = False

    def update(self, ranks: Ranks) -> None:
        """POST /update: who is who in the job."""
        with self._lock:
            self._ranks = ranks
            self._nodes = ranks.nnodes
            if ranks.ipVersion is not None and ranks.rankIps is not None:
                self._write_addresses(ranks, ranks.rankIps)

    def shut_down(self) -> None:
        """POST /shutdown."""
        self._box.set(AgentState.SHUTDOWN)

    def status(self) -> dict[str, object]:
        """GET /status."""
        shown = {**self._box.document(), "restartMode": "process_level_restart"}
        if self._ip_version:
            shown["ipversion"] = self._ip_version
        shown["agent_version"] = AGENT_VERSION
        if self._assigned >= 0:
            shown["assigned_rank"] = str(self._assigned)
        # An agent that restarts processes does not follow this member of requests.
        return {**shown, "spare": "True"}

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Follow the workers until /shutdown. Returns the exit code.

        Raises:
            Terminated: a signal has ended the agent; the workers have ended.
        """
        try:
            while self._box.state is not AgentState.SHUTDOWN:
                time.sleep(self._arguments.monitor_seconds)
                self._group = self._monitor()
                self._act()
        except Terminated as end:
            self._end_workers(end.signal, self._arguments.shutdown_seconds)
            raise
        _log.info("Shutting down agent...")
        self._end_workers(signal.SIGTERM, self._arguments.shutdown_seconds)
        return 1 if self._group in {Group.FAILED, Group.UNHEALTHY} else 0

    def _monitor(self) -> Group:
        if self._workers is None:
            return self._group
        if self._group is not Group.FAILED:
            self._failures = self._workers.failures()
            if self._failures:
                self._workers.stop(self._arguments.shutdown_signal, self._arguments.shutdown_seconds)
                return Group.FAILED
            if self._watch is not None and self._watch.found[0] in BAD:
                return Group.UNHEALTHY
            return Group.SUCCEEDED if self._workers.ended else Group.HEALTHY
        return self._group

    def _act(self) -> None:
        state = self._box.state
        if state is AgentState.STOPPING:
            self._stop_workers()
        elif state is not AgentState.RUNNING:
            return
        elif self._group in {Group.UNHEALTHY, Group.FAILED}:
            self._fault()
        elif self._group is Group.INIT or (self._group is Group.SUCCEEDED and self._can_start):
            try:
                next(self._stages)
            except StopIteration:
                _log.info("worker group successfully finished.")
                self._box.set(AgentState.COMPLETED)
                self._end_watch()

    def _run_stages(self) -> Iterator[None]:
        """The stages, one for each step of the generator: a pre-train script, the training, a post-train script."""
        arguments = self._arguments
        for script, processes in ((arguments.pre_train, 1), (arguments.program, arguments.processes)):
            self._begin(script, processes)
            yield
        self._begin(arguments.post_train, 1)
        yield

    def _begin(self, program: tuple[str, ...], processes: int) -> None:
        self._end_watch()
        if not program:
            self._workers, self._group = None, Group.SUCCEEDED
            return
        with self._lock:
            ranks = self._ranks
        if ranks is None:
            message = "RUNNING follows /start alone"
            raise RuntimeError(message)
        arguments = self._arguments
        variables = [self._variables(ranks, rank, processes) for rank in range(processes)]
        prefixes = tuple(self._prefix(own) for own in variables)
        output = Output(self._logs, arguments.log_file, arguments.tee in {"1", "2", "3"}, prefixes)
        self._workers = Workers(program, variables, output, ranks.faultCount)
        self._group = Group.HEALTHY
        self._follow(ranks)

    def _prefix(self, own: Mapping[str, str]) -> str:
        """Before each line of a worker on the console; TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE replaces torch's own."""
        template = os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
        if not template:
            return f"[{self._arguments.role}{own['LOCAL_RANK']}]:"
        return Template(template).safe_substitute(
            role_name=self._arguments.role,
            rank=own["RANK"],
            local_rank=own["LOCAL_RANK"],
            group_rank=own["GROUP_RANK"],
            restart_count=own["TORCHELASTIC_RESTART_COUNT"],
        )

    def _variables(self, ranks: Ranks, local_rank: int, processes: int) -> dict[str, str]:
        rank, world = str(ranks.rank * processes + local_rank), str(ranks.nnodes * processes)
        restarts = str(ranks.faultCount)
        return {
            "LOCAL_RANK": str(local_rank),
            "RANK": rank,
            "GROUP_RANK": str(ranks.rank),
            "ROLE_RANK": rank,
            "ROLE_NAME": self._arguments.role,
            "LOCAL_WORLD_SIZE": str(processes),
            "WORLD_SIZE": world,
            "GROUP_WORLD_SIZE": str(ranks.nnodes),
            "ROLE_WORLD_SIZE": world,
            "MASTER_ADDR": ranks.master_addr,
            "MASTER_PORT": str(ranks.master_port),
            "JOB_RESTART_COUNT": restarts,
            "TORCHELASTIC_RESTART_COUNT": restarts,
            "TORCHELASTIC_MAX_RESTARTS": str(self._arguments.max_restarts),
            "TORCHELASTIC_RUN_ID": self._arguments.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            "HYPERPOD_SIGNAL_COORDINATION": os.environ.get("HYPERPOD_SIGNAL_COORDINATION", "disabled"),
        }

    def _follow(self, ranks: Ranks) -> None:
        """Let the log rules read the output of the first worker."""
        try:
            rules = [Rule(rule) for rule in ranks.log_monitoring_configuration or ()]
        except (ValueError, KeyError, TypeError) as error:
            _log.error("Failed to load Log Monitoring Configuration: %s", error)
            return
        if rules:
            self._watch = LogWatch(rules, self._logs / f"attempt_{ranks.faultCount}" / "0" / "stdout.log")

    def _fault(self) -> None:
        state, rules = (LogState.WAITING, {}) if self._watch is None else self._watch.found
        _log.error("worker group changed to %s state.", self._group.name)
        if state in BAD:
            reason, words = _WORDS[state]
            self._box.set(AgentState.FAULTED, f"{reason}{next(iter(rules))}", f"{words}{rules}")
            return
        lines = "".join(
            f"    Local Rank {failure.local_rank} exited with code {failure.exit_code} due to: {failure.message}\n"
            for failure in self._failures
        )
        self._box.set(AgentState.FAULTED, "WorkerCrash", f"A training worker process has crashed:\n{lines}")

    def _stop_workers(self) -> None:
        _log.info("Stopping workers...")
        request, arguments = self._stop, self._arguments
        number = signal.SIGUSR1 if request.is_graceful else arguments.shutdown_signal
        self._end_workers(number, request.timeout or arguments.shutdown_seconds)
        self._group, self._failures = Group.INIT, []
        self._stages = self._run_stages()
        self._box.set(AgentState.READY)

    def _end_workers(self, number: signal.Signals, seconds: float) -> None:
        if self._workers is not None:
            self._workers.stop(number, seconds)
            self._workers = None
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _write_addresses(self, ranks: Ranks, addresses: list[dict[str, str | int]]) -> None:
        """pod_resourceconfig.json: the address of each rank; later requests name only those that have changed."""
        document = _json(self._config)
        known: list[Any] = [*document.get("ips", [])][: ranks.nnodes]
        known += [None] * (ranks.nnodes - len(known))
        for entry in addresses:
            if int(entry["rank"]) < ranks.nnodes:
                known[int(entry["rank"])] = entry["ip"]
        current = known[ranks.rank] if ranks.rank < ranks.nnodes else None
        document.update({"ips": known, "current_pod_ip": current, "ips_timestamp": ranks.ipVersion})
        partial = self._config.with_suffix(".json.tmp")
        partial.write_text(json.dumps(document))
        partial.replace(self._config)
        self._ip_version = ranks.ipVersion


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
