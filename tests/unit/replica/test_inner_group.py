"""The pure parts of a replica's process group: who is where, how many there are, why they ended, what they write."""

import json
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from pydantic import JsonValue

from muster.contract.errors import MusterError
from muster.contract.exits import ReplicaExit, read_exit
from muster.replica.entry import launch
from muster.replica.entry.launch import processes_on_instance
from muster.replica.entry.main import main as run_process
from muster.replica.group import network_board, spawning
from muster.replica.group.board import BoardError, InnerGroup, LocalBoard, has
from muster.replica.group.cause import Cause, End, first_cause
from muster.replica.group.group_folder import GroupFolder, Report
from muster.replica.group.group_process import GroupProcess
from muster.replica.group.instances import ALONE, Instances, read_instances
from muster.replica.group.launched_group import Group
from muster.replica.group.launcher import agree_on_master, network_variables
from muster.replica.group.network_board import VALUE_BYTES_MAX, BoardServer, NetworkBoard
from muster.replica.group.process_output import LINE_BYTES_MAX, PrefixedLines
from muster.replica.group.spawning import group_variables, omp_threads
from muster.replica.replica_errors import GroupError, HistoryGoneError, InputError, TrainerError
from tests.support.peers import Run


def resource_config(base: Path, content: object) -> Path:
    folder = base / "input" / "config"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resourceconfig.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return base


def test_instances_are_ordered_by_number_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    hosts = sorted(f"algo-{number}" for number in range(1, 13))
    assert hosts[1] == "algo-10"
    base = resource_config(tmp_path, {"current_host": "algo-10", "hosts": hosts, "network_interface_name": "eth0"})
    found = read_instances(base)
    assert (found.first, found.index, found.count, found.interface) == ("algo-1", 9, 12, "eth0")
    assert read_instances(tmp_path / "elsewhere") == ALONE


def test_a_list_of_instances_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    unusable: list[tuple[object, str]] = [
        ("{", "cannot be read"),
        ([], "lists no hosts"),
        ({"hosts": [], "current_host": "algo-1"}, "lists no hosts"),
        ({"hosts": [1], "current_host": 1}, "lists no hosts"),
        ({"hosts": ["algo-1"], "current_host": "algo-2"}, "the current_host 'algo-2', not exactly one"),
        ({"hosts": ["algo-1", "algo-1"], "current_host": "algo-1"}, "not exactly one of its hosts"),
    ]
    for content, words in unusable:
        with pytest.raises(InputError, match=words):
            read_instances(resource_config(tmp_path, content))


def test_there_is_one_process_per_gpu_unless_the_spec_says_otherwise(tmp_path: Path) -> None:
    rows: list[tuple[str | None, str | None, int, int]] = [
        (None, None, 8, 1),  # a job of an older version
        ("3", None, 8, 3),
        ("auto", None, 8, 8),
        ("auto", None, 0, 1),
        ("auto", "0,3", 8, 2),
        ("auto", "0,-1,2", 8, 1),
        ("auto", "", 8, 1),
    ]
    for gpus in (0, 8):
        devices = tmp_path / f"{gpus}"
        devices.mkdir()
        for name in ("nvidiactl", "nvidia-uvm", "null", *(f"nvidia{number}" for number in range(gpus))):
            (devices / name).touch()
    for asked, visible, gpus, count in rows:
        given = {"MUSTER_PROCESSES": asked, "CUDA_VISIBLE_DEVICES": visible}
        variables = {name: value for name, value in given.items() if value is not None}
        assert processes_on_instance(variables, tmp_path / f"{gpus}") == count, variables
    for wrong in ("0", "257", "-1", "many", "1.5", "٣"):
        with pytest.raises(InputError, match="neither auto nor a whole number from 1 to 256"):
            processes_on_instance({"MUSTER_PROCESSES": wrong}, tmp_path)


def test_the_variables_are_those_of_torchrun() -> None:
    instances = Instances(("algo-1", "algo-2", "algo-3"), "algo-2")
    group = Group(instances, 4, job="job", replica="0", spawn=spawning.spawn_plainly)
    places = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "4"}
    assert group_variables(group, ("10.0.0.1", 29500), 2) == {
        **places,
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
    }


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    assert omp_threads({}, 4, 96) == {"OMP_NUM_THREADS": "24"}
    assert omp_threads({}, 8, 2) == {"OMP_NUM_THREADS": "1"}
    assert omp_threads({"OMP_NUM_THREADS": "3"}, 8, 2) == {}
    listed = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth1"}
    instances, nccl = read_instances(resource_config(tmp_path, listed)), {"NCCL_SOCKET_IFNAME": "eth7"}
    assert network_variables(nccl, instances, tmp_path) == {"GLOO_SOCKET_IFNAME": "eth1"}
    (tmp_path / "uverbs0").touch()
    assert network_variables({**nccl, "GLOO_SOCKET_IFNAME": "lo"}, instances, tmp_path) == {"FI_PROVIDER": "efa"}
    assert network_variables({}, ALONE, tmp_path) == {}


def test_instances_that_would_have_different_numbers_of_processes_are_no_group() -> None:
    instances = Instances(("algo-1", "algo-2"), "algo-2")
    board = LocalBoard()
    board.put("master", ["10.0.0.1", 29500, 8])
    group = Group(instances, 4, job="job", replica="0", spawn=spawning.spawn_plainly)
    with pytest.raises(GroupError, match="algo-2 would have 4 processes, but algo-1 has 8"):
        agree_on_master(group, board)
    assert agree_on_master(replace(group, count=8), board) == ("10.0.0.1", 29500)


def test_a_replica_under_torchrun_is_refused_with_what_to_do(tmp_path: Path) -> None:
    variables = {"TORCHELASTIC_RUN_ID": "none", "SAGEMAKER_BASE_DIR": str(tmp_path)}
    assert launch.main(variables) == ReplicaExit.BAD_INPUT
    failure = (tmp_path / "output" / "failure").read_text()
    assert failure.startswith("[bad-input] Muster was started by torchrun")
    assert "set processes" in failure


def report(at: float, text: str, code: ReplicaExit = ReplicaExit.USER_CODE) -> Report:
    return Report(at, code, text)


FIRST_CAUSES: list[tuple[dict[str, End], dict[str, Report], Cause | None]] = [
    ({}, {}, None),
    ({"a": End(1, 0), "b": End(2, 0)}, {}, None),
    # The first one to fail counts, not those that SIGTERM has ended then.
    ({"a": End(5, 1), "b": End(4, 143)}, {"a": report(3.0, "no data")}, Cause(1, "a: no data")),
    (
        {"a": End(5, 1), "b": End(6, 143)},
        {"a": report(3.0, "no data"), "b": report(3.5, "stopped", ReplicaExit.STOPPED)},
        Cause(1, "a: no data"),
    ),
    # A killed process says nothing, and its peer complains at once.
    ({"a": End(3.4, -9), "b": End(4, 1)}, {"b": report(3.0, "closed")}, Cause(137, "a was killed by SIGKILL")),
    ({"a": End(3.4, -11)}, {}, Cause(139, "a was killed by SIGSEGV")),
    # Killed long after another one's failure: a hung one, which was ended because of it.
    ({"a": End(33.0, -9), "b": End(4, 1)}, {"b": report(3.0, "no data")}, Cause(1, "b: no data")),
    # It has said why and was killed then.
    ({"a": End(3.4, -9)}, {"a": report(3.0, "no data")}, Cause(1, "a: no data")),
    ({"a": End(3.0, 3), "b": End(3.1, -15)}, {}, Cause(3, "a ended with exit code 3 and gave no reason")),
    ({"b": End(3.1, -15)}, {}, Cause(143, "b was ended by SIGTERM")),
]


def test_the_first_failure_is_the_cause() -> None:
    for ends, reports, cause in FIRST_CAUSES:
        assert first_cause(ends, reports, finished=set(ends)) == cause


def test_an_exit_code_of_0_is_a_success_only_of_a_process_that_has_said_that_it_is_done() -> None:
    ends = {"a": End(3.0, 0), "b": End(2.0, 0)}
    assert first_cause(ends, {}, {"a", "b"}) is None
    # Its peer loses it and complains.
    for reports in ({}, {"c": report(3.1, "connection closed")}):
        found = first_cause(ends, reports, {"b"})
        assert found is not None
        assert found.code == ReplicaExit.USER_CODE
        assert found.reason.startswith("a ended with exit code 0 before the trainer returned")


def test_a_process_reports_an_error_to_its_launcher_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    errors: list[tuple[MusterError, ReplicaExit]] = [
        (GroupError("another process of this replica has ended"), ReplicaExit.RENDEZVOUS),
        (BoardError("the first instance cannot be reached"), ReplicaExit.RENDEZVOUS),
        (HistoryGoneError("s3://bucket", "nothing is left"), ReplicaExit.BAD_INPUT),
        (TrainerError("no data"), ReplicaExit.USER_CODE),
    ]
    for number, (error, code) in enumerate(errors):
        (tmp_path / f"{number}").mkdir()
        folder = GroupFolder(tmp_path / f"{number}")
        read = Mock(side_effect=error)
        assert run_process({}, read, GroupProcess(InnerGroup(1, 2, 1), LocalBoard(), folder)) == code
        found = folder.reported(1)
        assert found is not None
        assert (found.code, found.text, folder.is_finished(1)) == (code, str(error), False)


def test_the_control_plane_reads_a_groups_failure_like_a_single_processs() -> None:
    exits = [
        (Cause(ReplicaExit.FENCED, "process 1: superseded"), ReplicaExit.FENCED),
        (Cause(137, "process 1 was killed by SIGKILL"), ReplicaExit.KILLED),
        (Cause(77, "process 1 ended with exit code 77 and gave no reason"), None),
    ]
    for cause, exit_ in exits:
        assert read_exit(f"AlgorithmError: {cause.reason}, exit code: {cause.code}") == exit_


def test_lines_are_named_when_they_are_complete_and_the_last_one_at_the_end() -> None:
    lines = PrefixedLines("[2.5] ")
    assert [lines.take(part) for part in (b"one\ntw", b"o\n\nthree")] == [b"[2.5] one\n", b"[2.5] two\n[2.5] \n"]
    assert (lines.end(), lines.end()) == (b"[2.5] three\n", b"")
    endless = b"x" * (LINE_BYTES_MAX + 1)
    assert lines.take(endless) == b"[2.5] " + endless + b"\n"


def test_a_board_is_the_same_over_the_network() -> None:
    served = LocalBoard()
    value: JsonValue = {"a": [1, None, "ü"]}
    server = BoardServer(served, ("127.0.0.1", 0))
    address = ("127.0.0.1", server.port)
    board = NetworkBoard(*address)
    assert not has(board, "key")
    # The first value of a key stays.
    assert board.put("key", value) == board.put("key", 2) == served.get("key") == board.get("key") == value
    with pytest.raises(BoardError, match=f"allowed: at most {VALUE_BYTES_MAX:,}"):
        board.put("large", "x" * (VALUE_BYTES_MAX + 2000))
    wrong = b'{"get": "x", "seconds": "soon"}\n'
    for nonsense in (b"GET / HTTP/1.1\r\n", b"[]\n", b'{"put": "x"}\n', b"\xff\n", wrong):
        with socket.create_connection(address) as stranger:
            stranger.sendall(nonsense)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) == b"", nonsense
    assert board.get("key") == value
    server.close()
    with pytest.raises(BoardError, match=r"first instance \(127\.0\.0\.1:\d+\) cannot be reached"):
        NetworkBoard(*address, patience_seconds=0.0).get("key")
    with pytest.raises(BoardError, match="has said 'other' within 0 s"):
        served.get("other", 0.0)


def test_a_call_that_has_waited_for_long_outlives_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_board, "_HELD_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        board = NetworkBoard(*server.getsockname(), patience_seconds=0.0)

        def serve() -> None:
            for answer in (b"", b"", b'{"value": "there"}\n'):
                with server.accept()[0] as connection, connection.makefile("rb") as stream:
                    stream.readline()
                    time.sleep(0.05)
                    connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        assert board.get("ended") == "there"
        serving.join()


def test_a_board_that_closes_every_connection_at_once_is_not_asked_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            server.accept()[0].close()

        closing = threading.Thread(target=close)
        closing.start()
        with pytest.raises(BoardError, match="cannot be reached: "):
            NetworkBoard(*server.getsockname(), patience_seconds=0.0).get("ended")
        closing.join()


def test_a_board_listens_everywhere_if_its_address_is_known_outside_only() -> None:
    server = BoardServer(LocalBoard(), ("192.0.2.1", 0))  # an address of documentation, which no machine has
    assert NetworkBoard("127.0.0.1", server.port).put("key", 1) == 1
    server.close()


def test_a_group_holds_one_claim_and_renews_it_once(tmp_path: Path) -> None:
    run, board = Run.alone(tmp_path), LocalBoard()
    members = [InnerGroup(rank, 3, rank) for rank in range(3)]
    seats = [run.open(group=member, board=board).seat for member in members]
    assert {seat.claim.epoch for seat in seats} == {1}
    for seat in seats:
        seat.renew(0)
    assert {seat.claim for seat in seats} == {seats[0].claim}
    assert seats[0].claim.epoch == 2
    # A new container has a new board, and fences the whole group.
    assert run.open().seat.epoch == 3


def test_the_plain_spawner_serves_where_there_is_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, spawner in ((None, spawning.spawn_plainly), (object(), spawning.spawn_with_torch)):
        monkeypatch.setattr(spawning.importlib.util, "find_spec", lambda _name, found=found: found)
        assert spawning.the_spawner() is spawner
