"""The processes of functions, of which all but the first are forked: each is like a new interpreter."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.local.ministack.function_processes import ForkedProcess, FunctionProcesses
from tests.support.cloud_processes import alive
from tests.support.waiting import wait_until

# Tells what it finds, as often as it is asked.
SCRIPT = """
import json, os, random, sys
sys.path.insert(0, os.getcwd())
preloaded = [name for name in ("botocore", "muster.contract.run.record", "muster.control") if name in sys.modules]
import own
for line in sys.stdin:
    if line == "end\\n":
        sys.exit(3)
    own.calls += 1
    print("told", file=sys.stderr, flush=True)
    found = {
        "environment": dict(os.environ), "folder": os.getcwd(), "pid": os.getpid(), "arguments": sys.argv,
        "calls": own.calls, "setting": own.setting, "random": random.random(), "preloaded": preloaded,
        "open": [int(name) for name in os.listdir("/proc/self/fd")], "name": __name__,
    }
    print(json.dumps(found), flush=True)
"""
OWN = "import os\ncalls = 0\nsetting = os.environ['SETTING']\n"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere no process is forked")


@pytest.fixture
def processes() -> Iterator[FunctionProcesses]:
    made = FunctionProcesses()
    yield made
    made.end()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    (tmp_path / "script.py").write_text(SCRIPT)
    return folder


def start(processes: FunctionProcesses, code: Path, setting: str = "") -> Any:
    """A process, as MiniStack starts it."""
    return processes.start(
        [sys.executable, str(code.parent / "script.py")],
        cwd=str(code),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={"SETTING": setting, "PATH": os.environ["PATH"]},
    )


def forked(processes: FunctionProcesses, code: Path, setting: str = "") -> ForkedProcess:
    """A process that is not the first one."""
    first = start(processes, code)
    assert isinstance(first, subprocess.Popen)
    with first:
        first.kill()
    second = start(processes, code, setting)
    assert isinstance(second, ForkedProcess)
    return second


def ask(process: Any) -> dict[str, Any]:
    process.stdin.write("tell\n")
    assert process.stderr.readline() == "told\n"
    return dict(json.loads(process.stdout.readline()))


def end(process: Any) -> None:
    process.stdin.write("end\n")
    assert process.wait(timeout=60) == 3
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_a_forked_process_finds_what_a_new_interpreter_finds(processes: FunctionProcesses, code: Path) -> None:
    first, second = start(processes, code, "a"), start(processes, code, "a")
    plain, fork = ask(first), ask(second)
    assert isinstance(second, ForkedProcess)
    assert (fork["pid"], second.poll()) == (second.pid, None)
    assert (plain.pop("preloaded"), fork.pop("preloaded")) == ([], ["botocore", "muster.contract.run.record"])
    for found in (plain, fork):
        del found["pid"], found["random"]
        assert set(found.pop("open")) - {0, 1, 2} <= {3}, "that of the listing itself"
        found["environment"].pop("LC_CTYPE", None)  # Python's own, where no locale is set
    assert fork == plain
    # Two of them share no state.
    third = start(processes, code, "b")
    found, again = ask(third), ask(second)
    assert [(one["calls"], one["setting"]) for one in (found, again)] == [(1, "b"), (2, "a")]
    assert found["random"] != again["random"]
    for process in (first, second, third):
        end(process)


def test_a_forked_process_is_ended_by_signals_and_told_as_ended(processes: FunctionProcesses, code: Path) -> None:
    for act, code_of_end in (("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)):
        process = forked(processes, code) if act == "terminate" else start(processes, code)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.01)
        getattr(process, act)()
        assert process.wait(timeout=60) == process.poll() == code_of_end
        assert process.stdout.readline() == ""
        process.kill()  # of a process that has ended
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def test_a_server_that_was_killed_is_replaced(processes: FunctionProcesses, code: Path) -> None:
    lost = forked(processes, code)
    [server] = processes._servers.values()
    server.end()
    assert lost.wait(timeout=60) == -signal.SIGKILL
    for stream in (lost.stdin, lost.stdout, lost.stderr):
        stream.close()
    wait_until("the end of the lost process", lambda: not alive(lost.pid))
    again = start(processes, code)
    assert isinstance(again, ForkedProcess)
    assert ask(again)["calls"] == 1
    end(again)
