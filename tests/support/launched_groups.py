"""Groups of processes under Muster's launcher: in this process, and as the containers of a job's instances."""

import json
import os
import re
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from muster.replica.group.board import Board, LocalBoard
from muster.replica.group.cause import Cause
from muster.replica.group.instances import ALONE, Instances
from muster.replica.group.launched_group import Ends, Group, Master, Patience, Spawner
from muster.replica.group.launcher import run_group
from muster.replica.group.network_board import NetworkBoard
from muster.replica.group.spawning import spawn_plainly
from tests.support.command_server import Command
from tests.support.forked_replicas import ForkedRun
from tests.support.source_patch import ROOT

MEMBER = ROOT / "tests" / "support" / "jobs" / "programs" / "group_member.py"
IMPATIENT = Patience(stop=60.0, end=0.5, returned=60.0, meet=60.0, reach=0.5)


def addresses() -> tuple[str, str]:
    """Two addresses of the loopback interface that no other process uses at the same time."""
    block = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    return f"{block}.1", f"{block}.2"


@dataclass
class Launched:
    """A launcher at work, and what it returns."""

    thread: threading.Thread
    stop: threading.Event = field(default_factory=threading.Event)
    board: Board = field(default_factory=LocalBoard)
    found: list[Cause | None] = field(default_factory=list)

    def cause(self) -> Cause | None:
        self.thread.join(60)
        (cause,) = self.found
        return cause

    def pids(self, ranks: range) -> list[int]:
        return [int(str(self.board.get(f"up/{rank}", 60.0))) for rank in ranks]


class Launcher:
    """Launches groups in threads of this process; their processes are real, but train nothing."""

    def __init__(self) -> None:
        self._started: list[Launched] = []

    def __call__(
        self,
        count: int,
        instances: Instances = ALONE,
        spawner: Spawner = spawn_plainly,
        patience: Patience = IMPATIENT,
        **endings: str,
    ) -> Launched:
        """Start `count` processes: those named as in `_1="fails"` end so, the others wait for SIGTERM."""

        def spawn(group: Group, master: Master) -> Ends:
            host, port = os.environ["MUSTER_GROUP_BOARD"].split(":")
            one.board = NetworkBoard(host, int(port))
            known.set()
            arguments = [f"{name[1:]}={ending}" for name, ending in endings.items()]
            return spawner(replace(group, command=[sys.executable, str(MEMBER), *arguments]), master)

        def work() -> None:
            one.found.append(run_group(group, one.stop))

        group = Group(instances, count, job="job", replica="0", spawn=spawn, patience=patience)
        known = threading.Event()
        one = Launched(threading.Thread(target=work, name="launcher", daemon=True))
        self._started.append(one)
        one.thread.start()
        known.wait(60)
        return one

    def end(self) -> None:
        """No launcher outlives the test."""
        for one in self._started:
            one.stop.set()
            one.thread.join(60)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/root").exists()


def instances_of_a_job(run: ForkedRun) -> list[Command]:
    """The containers of a replica on two instances, with a process each; their trees are those of ranks 0 and 1."""
    hosts = addresses()
    for number, host in enumerate(hosts):
        config = run.base(number) / "input" / "config"
        config.mkdir(parents=True)
        listed = {"current_host": host, "hosts": list(hosts), "network_interface_name": "lo"}
        (config / "resourceconfig.json").write_text(json.dumps(listed))
    variables = {"MUSTER_RANK": "0", "MUSTER_PROCESSES": "1", "TRAINING_JOB_NAME": "job-of-the-test"}
    return [run.start(number, program="impatient", **variables) for number in range(2)]


def told(out: str) -> dict[str, dict[str, Any]]:
    """What `group_trainers.tell` has printed in each process, by rank."""
    lines = [re.fullmatch(r"\[0\.(\d+)\] (\{.*\})", line) for line in out.splitlines()]
    return {line[1]: json.loads(line[2]) for line in lines if line is not None}
