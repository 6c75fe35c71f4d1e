"""What the rows of the benchmarks against peers are made of; the limit of a worker's time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from bench import paced_rounds, store_clients, torchft_sync
from bench.__main__ import discover
from bench.peers.workers import Worker, running_workers
from bench.torchft_sync import Sync
from bench.usage import Usage, used

_MIB = 2**20


def _python(program: str) -> Worker:
    return Worker([sys.executable, "-c", program], os.environ)


def _turn(sent: float, received: float) -> dict[str, Usage]:
    return {"sent": Usage(sent / 2, sent / 2, 2 * sent), "received": Usage(received, 0.0, received)}


def test_rows_are_made_without_pytorch() -> None:
    """The replicas of its exchange alone import it: the command knows every benchmark, and needs none of them."""
    program = "import sys, bench.torchft_sync, bench.store_clients; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_the_benchmarks_are_discovered() -> None:
    assert {"store_clients", "torchft_sync", "paced_rounds"} <= discover().keys()
    assert "peers" not in discover()


def test_the_cost_of_a_client_is_that_of_all_bytes_it_has_moved_and_the_peer_is_the_best_client() -> None:
    mb = _MIB / 1e6
    turns = {
        "socket": [_turn(0.0001 * mb, 0.0002 * mb)] * 3,
        "muster": [_turn(0.0002 * mb, seconds * mb) for seconds in (0.0004, 0.0006, 0.0008)],
        "muster-one-put": [_turn(0, 0)] * 3,
        "obstore": [_turn(0.001 * mb, 0.001 * mb)] * 3,
        "awscrt": [_turn(0.002 * mb, 0.002 * mb)] * 3,
    }
    aimed, ratio, *clients = store_clients.rows(turns, 1)
    assert (aimed.value, aimed.peer, aimed.aim, aimed.ok) == (pytest.approx(0.4), pytest.approx(1.0), "<= 0.5", True)
    assert (ratio.value, ratio.peer) == (pytest.approx(0.4 / 0.15), pytest.approx(1 / 0.15))
    assert "0.30 to 0.50" in aimed.note
    assert "takes 0.15" in aimed.note
    assert "obstore" in aimed.note
    assert [row.value for row in clients] == pytest.approx([0.15, 0.4, 0, 1, 2])
    assert clients[1].note == "sent 0.20 (kernel 0.10), wall 0.40; received 0.60 (kernel 0.00), wall 0.60 ms/MB"


def _syncs(*seconds: float, cpu: float, moved: Sequence[int]) -> list[Sync]:
    return [Sync(wall, cpu, count) for wall, count in zip(seconds, moved, strict=True)]


def test_an_exchange_is_compared_with_the_one_of_the_same_turn_and_foreign_bytes_are_left_out() -> None:
    turns = {
        "muster": _syncs(2.0, 4.0, 9.0, cpu=3.0, moved=[5 * _MIB] * 3),
        "torchft": _syncs(1.0, 1.0, 3.0, cpu=2.0, moved=[9 * _MIB, 4 * _MIB, 5 * _MIB]),
    }
    seconds, ratio, cpu, moved = torchft_sync.rows(turns, 2, 1)
    assert (seconds.value, seconds.peer) == (4.0, 1.0)
    assert ratio.value == 3.0
    assert (cpu.value, cpu.peer) == (3.0, 2.0)
    assert (moved.value, moved.peer) == (2.5, 2.0)
    assert "= 2.00" in moved.note


def test_a_paced_round_is_compared_with_each_scheme_of_its_turn() -> None:
    seconds = {"muster": [2.0, 3.0, 4.0], "scatter-reduce": [4.0, 4.0, 4.0], "all-gather": [8.0] * 3, "bare": [1.0] * 3}
    rows = paced_rounds.peer_rows(seconds, 8, 64)
    assert [(row.value, row.aim, row.peer) for row in rows] == [
        (0.75, "< 1", 4.0),
        (0.375, "< 1", 8.0),
        (3.0, None, 1.0),
    ]


def test_the_cpu_of_the_work_is_counted_and_not_its_sleep() -> None:
    found = used(lambda: sum(range(2_000_000)))
    assert 0 < found.cpu <= found.wall + 0.05


def test_answers_are_lines_of_json_and_what_is_printed_beside_them_is_none() -> None:
    program = (
        "from bench.usage import Usage, answer_lines\n"
        "def turn(number):\n    print('noise')\n    return {'n': str(number), 'u': Usage(1.0, 2.0, 3.0)}\n"
        "answer_lines(turn)"
    )
    with running_workers({"a": _python(program), "b": _python(program)}, 30) as workers:
        expected = {"n": "0", "u": {"user": 1.0, "kernel": 2.0, "wall": 3.0}}
        assert workers.answers() == {"a": expected, "b": expected}
        assert workers.answers(["a"])["a"]["n"] == "1"


def test_a_worker_that_fails_is_named_with_what_it_printed() -> None:
    with (
        running_workers({"broken": _python("raise SystemExit('the store is gone')")}, 30) as workers,
        pytest.raises(RuntimeError, match=r"(?s)broken has ended.*the store is gone"),
    ):
        workers.answers()


def test_a_worker_that_hangs_is_killed_when_its_time_is_over() -> None:
    with (
        running_workers({"slow": _python("import time; time.sleep(600)")}, 0.2) as workers,
        pytest.raises(RuntimeError, match="its time was over"),
    ):
        workers.answers()
