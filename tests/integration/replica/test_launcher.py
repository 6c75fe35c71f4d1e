"""The launcher of a replica's processes, in this process; they are real, but train nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make test installs it")

from muster.contract.run.exits import ReplicaExit
from muster.replica.group import spawning, watch
from muster.replica.group.board import ENDED, Board, LocalBoard, has
from muster.replica.group.cause import Cause, End
from muster.replica.group.group_folder import GroupFolder
from muster.replica.group.inner_group import InnerGroup
from muster.replica.group.instances import ALONE, Instances
from muster.replica.group.launched_group import Group, Patience
from muster.replica.group.launcher import BOARD_PORT, run_group
from muster.replica.group.member import STOPPED_SECONDS, Member
from muster.replica.group.network_board import BoardServer, NetworkBoard
from muster.replica.group.spawning import Crew, Ends, Spawner, spawn_plainly, spawn_with_torch
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
MEMBER = ROOT / "tests" / "support" / "jobs" / "programs" / "group_member.py"
both = pytest.mark.parametrize("spawner", [spawn_plainly, spawn_with_torch])
IMPATIENT = Patience(stop=60.0, end=0.5, returned=60.0, meet=60.0, reach=0.5)


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


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/root").exists()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Launched]]:
    # The launcher adds to the variables of its process, which is a container's own elsewhere.
    monkeypatch.setattr(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT)})
    started: list[Launched] = []
    yield started
    for one in started:
        one.stop.set()
        one.thread.join(60)


def launch(
    launched: list[Launched],
    count: int,
    instances: Instances = ALONE,
    spawner: Spawner = spawn_plainly,
    patience: Patience = IMPATIENT,
    **endings: str,
) -> Launched:
    """Start `count` processes: those named as in `_1="fails"` end so, the others wait for SIGTERM."""

    def spawn(crew: Crew) -> Ends:
        host, port = os.environ["MUSTER_GROUP_BOARD"].split(":")
        one.board = NetworkBoard(host, int(port))
        known.set()
        arguments = [f"{name[1:]}={ending}" for name, ending in endings.items()]
        return spawner(replace(crew, command=[sys.executable, str(MEMBER), *arguments]))

    def work() -> None:
        one.found.append(run_group(group, one.stop))

    group = Group(instances, count, job="job", replica="0", spawn=spawn, patience=patience)
    known = threading.Event()
    one = Launched(threading.Thread(target=work, name="launcher", daemon=True))
    launched.append(one)
    one.thread.start()
    known.wait(60)
    return one


def test_a_failure_of_one_ends_all_and_is_the_reason(launched: list[Launched]) -> None:
    one = launch(launched, 3, _1="fails")
    pids = one.pids(range(3))
    assert one.cause() == Cause(ReplicaExit.USER_CODE, "process 1: no data")
    assert not any(map(is_alive, pids))


@both
def test_a_process_that_a_signal_kills_is_the_reason_and_not_what_its_peer_says(
    launched: list[Launched], spawner: Spawner
) -> None:
    one = launch(launched, 2, spawner=spawner, _0="complains", _1="dies")
    assert one.cause() == Cause(ReplicaExit.KILLED, "process 1 was killed by SIGKILL")


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_process_that_ends_with_0_before_its_trainer_returned_is_an_error(
    launched: list[Launched], leaver: int
) -> None:
    one = launch(launched, 2, **{f"_{leaver}": "leaves", f"_{1 - leaver}": "returns"})
    reason = f"process {leaver} ended with exit code 0 before the trainer returned: let it return"
    cause = one.cause()
    assert cause is not None
    assert (cause.code, cause.text.startswith(reason)) == (ReplicaExit.USER_CODE, True)


def test_a_process_that_the_spawner_reaps_before_the_launcher_looks_is_not_waited_for(
    launched: list[Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.4)
    monkeypatch.setattr(watch, "GONE_SECONDS", 0.5)
    cause = launch(launched, 2, _0="returns", _1="leaves").cause()
    assert cause is not None
    assert cause.text.startswith("process 1 ended with exit code 0 before the trainer returned")


def test_the_process_that_ended_first_is_the_reason_although_the_spawner_reaps_it_before_the_launcher_looks(
    launched: list[Launched],
) -> None:
    def spawn(crew: Crew) -> Ends:
        children = [
            subprocess.Popen(crew.command, env={**os.environ, **spawning.group_variables(crew, local_rank)})
            for local_rank in range(crew.count)
        ]
        ended = time.time()
        children[1].wait()
        children[0].kill()
        time.sleep(10 * watch.LOOK_SECONDS)  # the launcher sees the end of process 0, and must not judge by it
        children[0].wait()
        return {0: End(time.time(), -signal.SIGKILL), 1: End(ended, -signal.SIGKILL)}

    cause = launch(launched, 2, spawner=spawn, _0="hangs", _1="dies").cause()
    assert cause == Cause(ReplicaExit.KILLED, "process 1 was killed by SIGKILL")


def test_a_peer_that_is_dead_is_not_waited_for(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path)
    peer = subprocess.Popen(["true"])
    (tmp_path / "1.pid").write_text(str(peer.pid))
    peer.wait()
    began = time.monotonic()
    Member(InnerGroup(0, 2, 0), LocalBoard(), folder).wait_for_stops()
    assert time.monotonic() - began < STOPPED_SECONDS / 2


def test_processes_whose_trainers_return_have_succeeded(launched: list[Launched]) -> None:
    assert launch(launched, 2, _0="returns", _1="returns").cause() is None


def test_a_process_that_hangs_is_killed_when_another_one_has_failed(launched: list[Launched]) -> None:
    one = launch(launched, 2, _0="fails", _1="hangs")
    pids = one.pids(range(2))
    assert one.cause() == Cause(ReplicaExit.USER_CODE, "process 0: no data")
    assert not any(map(is_alive, pids))


def test_a_process_that_never_returns_is_named_and_ended(launched: list[Launched]) -> None:
    one = launch(launched, 2, patience=replace(IMPATIENT, returned=0.3), _0="returns")
    pids = one.pids(range(2))
    text = "process 1 is hung: it is still in the trainer 0.3 s after process 0 has returned from it"
    assert one.cause() == Cause(ReplicaExit.USER_CODE, text)
    assert not any(map(is_alive, pids))


@both
def test_when_the_job_is_stopped_all_have_time_to_save(launched: list[Launched], spawner: Spawner) -> None:
    one = launch(launched, 3, spawner=spawner)
    one.pids(range(3))
    one.stop.set()
    cause = one.cause()
    assert cause is not None
    assert cause.code == ReplicaExit.STOPPED
    assert cause.text.endswith("stopped when [0, 1, 2] had saved")


def test_a_process_that_does_not_stop_is_killed_before_sagemaker_does(launched: list[Launched]) -> None:
    one = launch(launched, 2, patience=replace(IMPATIENT, stop=1.0), _0="hangs")
    pids = one.pids(range(2))
    one.stop.set()
    wait_until("the other one saves", lambda: has(one.board, "saved/1"))
    assert one.cause() == Cause(ReplicaExit.KILLED, "process 0 was killed: it still ran 1 s after SIGTERM")
    assert not any(map(is_alive, pids))


@dataclass
class FirstInstance:
    """The first instance of two as the second one sees it."""

    instances: Instances
    board: LocalBoard
    server: BoardServer


@pytest.fixture
def first() -> Iterator[FirstInstance]:
    # Two addresses of the loopback interface, which no other test of this machine uses at the same time.
    block = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    board = LocalBoard()
    board.put("master", [f"{block}.1", 29500, 2])
    server = BoardServer(board, (f"{block}.1", BOARD_PORT))
    yield FirstInstance(Instances((f"{block}.1", f"{block}.2"), f"{block}.2"), board, server)
    server.close()


def test_a_failure_is_passed_on_to_the_other_instances(launched: list[Launched], first: FirstInstance) -> None:
    cause = launch(launched, 2, first.instances, _3="fails").cause()
    text = f"process 3 on {first.instances.current}: no data"
    assert cause == Cause(ReplicaExit.USER_CODE, text)
    assert first.board.get(ENDED, 0.0) == [ReplicaExit.USER_CODE, text]


def test_a_failure_on_another_instance_ends_this_one_and_is_its_reason(
    launched: list[Launched], first: FirstInstance
) -> None:
    one = launch(launched, 2, first.instances)
    pids = one.pids(range(2, 4))
    first.board.put(ENDED, [ReplicaExit.USER_CODE, "process 0 on algo-1: no data"])
    assert one.cause() == Cause(ReplicaExit.USER_CODE, "process 0 on algo-1: no data")
    assert not any(map(is_alive, pids))
