"""Children of the keeper: started, signalled, and never left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local.processes import process_pool as processes
from muster.local.processes.process_pool import Child, ProcessPool
from tests.support.cloud_processes import alive
from tests.support.waiting import wait_until

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessPool]:
    monkeypatch.setattr(processes, "_END_SECONDS", 60.0)
    made = ProcessPool()
    yield made
    made.end_all()


def start(pool: ProcessPool, place: Path, code: str, **environment: str) -> Child:
    return pool.spawn([sys.executable, "-c", code], env={**ENVIRONMENT, **environment}, cwd=place, log=place / "log")


def first_line(place: Path) -> str:
    """What the child in this folder has written, once it has."""
    log = place / "log"
    return wait_until("the child's line", lambda: log.exists() and log.read_text())  # type: ignore[return-value]


def test_a_child_has_its_own_environment_directory_and_log(pool: ProcessPool, tmp_path: Path) -> None:
    code = "import os, sys; print(sorted(os.environ), os.getcwd(), flush=True); print('err', file=sys.stderr)"
    child = start(pool, tmp_path, code, ONLY="this")
    assert child.wait(60)
    assert child.exit_code == 0
    output, error = (tmp_path / "log").read_text().splitlines()
    assert "'ONLY', 'PATH'" in output
    assert output.endswith(str(tmp_path))
    assert error == "err"


def test_its_end_is_reported(pool: ProcessPool, tmp_path: Path) -> None:
    for code, exit_code in (("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)):
        child = start(pool, tmp_path, code)
        assert child.wait(60)
        assert child.exit_code == exit_code
    child = pool.spawn(["no-such-program"], env=ENVIRONMENT, cwd=tmp_path, log=tmp_path / "log")
    assert child.wait(60)
    assert (child.exit_code, child.missing) == (127, "No such file or directory")


def test_sigterm_reaches_the_first_process_alone_as_in_a_container(pool: ProcessPool, tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('first', flush=True), time.sleep(0.5), sys.exit(0)))\n"
        "second = 'import signal, time; signal.signal(15, lambda *_: print(\"second\", flush=True)); '"
        "'print(\"up\", flush=True); time.sleep(600)'\n"
        "subprocess.Popen([sys.executable, '-c', second]).wait()\n"
    )
    child = start(pool, tmp_path, code)
    first_line(tmp_path)
    child.signal(signal.SIGTERM)
    assert child.wait(60)
    assert child.exit_code == 0
    assert (tmp_path / "log").read_text().split() == ["up", "first"]


def test_what_it_leaves_in_its_group_ends_with_it(pool: ProcessPool, tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    child = start(pool, tmp_path, code)
    assert child.wait(60)
    left = int((tmp_path / "log").read_text())
    wait_until("the end of the process", lambda: not alive(left))


def test_nothing_is_left_when_all_are_ended(pool: ProcessPool, tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    places = [tmp_path / str(number) for number in range(3)]
    for place in places:
        place.mkdir()
    children = [start(pool, place, code) for place in places]
    pids = [int(first_line(place)) for place in places]
    told = children.pop()
    told.signal(signal.SIGTERM)
    assert told.wait(60)
    assert told.exit_code == 128 + signal.SIGTERM
    pool.end_all()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="adopting orphans of other groups needs Linux")
def test_what_a_job_has_started_in_sessions_of_their_own_ends_with_it(pool: ProcessPool, tmp_path: Path) -> None:
    daemon = "print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
    child = start(pool, tmp_path, f"import subprocess; {daemon}")
    assert child.wait(60)
    assert not alive(int(first_line(tmp_path)))
    # A job that ignores SIGTERM, too.
    ignores = "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    (tmp_path / "killed").mkdir()
    child = start(pool, tmp_path / "killed", f"{ignores}; {daemon}; time.sleep(600)")
    pid = int(first_line(tmp_path / "killed"))
    child.signal(signal.SIGTERM)
    child.signal(signal.SIGKILL)
    assert child.wait(60)
    assert child.exit_code == 137
    assert not alive(pid)


def test_no_child_outlives_a_service_that_is_killed(tmp_path: Path) -> None:
    service = (
        "import os, sys\nfrom pathlib import Path\nfrom muster.local.processes.process_pool import ProcessPool\n"
        "place = Path(sys.argv[1])\npool = ProcessPool()\n"
        "child = pool.spawn(['sleep', '600'], env={'PATH': os.environ['PATH']}, cwd=place, log=place / 'log')\n"
        "while child.pid is None: child.wait(0.01)\n"
        "print(child.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    started = subprocess.run(
        [sys.executable, "-c", service, str(tmp_path)], capture_output=True, text=True, check=False
    )
    wait_until("the end of the process", lambda: not alive(int(started.stdout)))


def test_a_keeper_that_is_killed_takes_its_children_with_it_and_is_replaced(pool: ProcessPool, tmp_path: Path) -> None:
    child = start(pool, tmp_path, "import time; print('up', flush=True); time.sleep(600)")
    first_line(tmp_path)
    assert child.pid is not None
    os.kill(pool._keeper.pid, signal.SIGKILL)
    assert child.wait(60)
    assert child.exit_code == 128 + signal.SIGKILL
    wait_until("the end of the process", lambda: child.pid is not None and not alive(child.pid))
    child.signal(signal.SIGTERM)
    for code in (7, 8):
        following = start(pool, tmp_path, f"raise SystemExit({code})")
        assert following.wait(60)
        assert following.exit_code == code
