"""TorchX's own command line against the deployed stack, in the newest stable version and in the nightly."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from muster.local.faults import CallError, Crash
from muster.torchx.options import FORMER, OWN
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed
from tests.support.waiting import wait_until
from tests.support.workshop import own_calls

ENVIRONMENTS = Path(__file__).resolve().parents[2] / "build" / "torchx"
IMAGE = "muster-local/python:latest"

# Schedules twice, follows both replicas at once from their start, and lets them end.
PYTHON_INTERFACE = """
import json, logging, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from torchx.runner import get_runner
from torchx.specs import AppDef, AppState, RetryPolicy, Role, macros

image, gate = sys.argv[1:]
command = f'echo "rank ${{replica_id}} $SAID"; until test -e {gate}; do sleep 0.1; done; echo last'
role = Role(
    "node", image, entrypoint="sh", args=["-c", command], num_replicas=2, min_replicas=1,
    max_retries=2, retry_policy=RetryPolicy.REPLICA, env={"SAID": macros.replica_id},
)
with get_runner("api") as runner:
    request = runner.dryrun(AppDef("api", [role]), "muster", {"max_run": 600})
    handle, again = runner.schedule(request), runner.schedule(request)
    read = lambda rank: list(runner.log_lines(handle, "node", rank, should_tail=True))
    with ThreadPoolExecutor() as pool:
        reading = [pool.submit(read, rank) for rank in range(2)]
        while any(replica.state is not AppState.RUNNING for replica in runner.status(handle).roles[0].replicas):
            time.sleep(0.2)
        Path(gate).touch()
        status = runner.wait(handle, wait_interval=0.2)
        lines = {rank: found.result() for rank, found in enumerate(reading)}
    runner.stop(handle)
    missing = [runner.status("muster://api/nobody"), runner.describe("muster://api/nobody")]
replicas = {replica.id: replica.state.name for replica in status.roles[0].replicas}
told = {"handle": handle, "again": again, "lines": lines, "state": status.state.name, "replicas": replicas}
print(json.dumps(told | {"missing": missing}))
"""

TWO_ROLES = """
from torchx.specs import AppDef, Role

def two() -> AppDef:
    return AppDef("two", [Role(name, "", entrypoint="true") for name in ("a", "b")])
"""

Server = tuple[str, CommandServer]
DDP = ("dist.ddp", "-j", "1x1", "--script", "train.py")


class TorchX:
    """One version, installed beside Muster by `make test`."""

    def __init__(self, server: CommandServer, version: str, stack: Deployed) -> None:
        self._server = server
        self._folder = ENVIRONMENTS / version / "bin"
        self._environment = stack.cloud.environment(os.environ | {"NO_COLOR": "1"})
        self._place = stack.gates

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "run" and "--workspace" not in arguments:
            arguments = ("run", "--workspace", "", *arguments[1:])  # the code of most tests is in the image
        return self._server.run(arguments, self._place, self._environment | variables)

    def process(self, program: str, *arguments: str, folder: Path | None = None) -> str:
        """What a program of this version's environment prints, as a process of its own."""
        answer = subprocess.run(
            [str(self._folder / program), *arguments],
            env=self._environment,
            cwd=folder or self._place,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def run(self, *arguments: str) -> str:
        """Start an application; its handle."""
        answer = self("run", "-s", "muster", *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.split()[0]


@pytest.fixture(scope="module", params=["stable", "nightly"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python = ENVIRONMENTS / request.param / "bin" / "python"
    modules = ("torchx.cli.main", "muster.torchx.scheduler", "muster.client", "boto3")
    with CommandServer(python, modules, tmp_path_factory.mktemp("torchx")) as running:
        yield request.param, running


@pytest.fixture
def torchx(server: Server, stack: Deployed) -> TorchX:
    version, running = server
    return TorchX(running, version, stack)


def test_an_application_is_run_and_told_by_torchxs_own_commands(torchx: TorchX) -> None:
    command = ("utils.sh", "--image", IMAGE, "--num_replicas", "2", "--max_retries", "1")
    say = (*command, "echo", "the rank is ${replica_id}; 'quoted'")
    handle = torchx.run("--wait", *say)
    app = handle.rpartition("/")[2]
    status = torchx("status", handle)
    assert status.returncode == 0, status.stderr
    assert "SUCCEEDED" in status.stdout
    assert status.stdout.count("SUCCEEDED") == 3  # the application's and both replicas'
    described = torchx("describe", handle)
    assert (described.returncode, "'num_replicas': 2" in described.stdout) == (0, True), described.stdout
    assert app in torchx("list", "-s", "muster").stdout
    logged = torchx("log", handle)
    for rank in (0, 1):
        assert f"sh/{rank} the rank is {rank}; 'quoted'" in logged.stdout, logged.stdout + logged.stderr

    followed = torchx("log", "--tail", "--regex", "rank is [13]", f"{handle}/sh/0,1").stdout
    assert followed == "sh/1 the rank is 1; 'quoted'\n"

    missing = torchx("describe", "muster://torchx/nobody")
    assert missing.returncode != 0
    assert "Traceback" not in missing.stderr


def test_every_option_is_told(torchx: TorchX) -> None:
    told = torchx.process("torchx", "runopts", "muster")
    assert [option.name for option in (*FORMER, *OWN) if f"    {option.name}=" not in told] == []


def test_a_dry_run_calls_nothing_and_leaves_nothing(torchx: TorchX, stack: Deployed, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / ".torchxconfig").write_text("[muster]\nmax_run = 600\nvolume_size = 7\nsource_dir = .\n")
    before = sorted(tmp_path.rglob("*"))
    calls = own_calls(stack.cloud)
    dry = ("run", "-s", "muster", "--dryrun", "-cfg", "max_run=60,subnets=subnet-1;subnet-2,security_group_ids=sg-1")
    # TorchX reads where its settings are when it is imported.
    answer = torchx.process("torchx", *dry, "utils.python", "--image", "", "--script", "train.py", folder=tmp_path)
    told = yaml.safe_load(answer.partition("=== SCHEDULER REQUEST ===")[2])
    assert (told["max_runtime_seconds"], told["volume_gb"], told["source_dir"]) == (60, 7, ".")
    assert told["vpc_config"] == {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}
    assert (sorted(tmp_path.rglob("*")), own_calls(stack.cloud)) == (before, calls)


def test_the_python_interface_does_the_same(torchx: TorchX, stack: Deployed) -> None:
    gate = stack.gates / f"api-{uuid4().hex}"
    told = json.loads(torchx.process("python", "-c", PYTHON_INTERFACE, IMAGE, str(gate)))
    assert told["again"] == told["handle"]
    assert told["lines"] == {"0": ["rank 0 0\n", "last\n"], "1": ["rank 1 1\n", "last\n"]}
    assert (told["state"], told["replicas"]) == ("SUCCEEDED", {"0": "SUCCEEDED", "1": "SUCCEEDED"})
    assert told["missing"] == [None, None]
    spec = stack.run(told["handle"].rpartition("/")[2]).describe()["input"]
    asked = json.loads(spec)
    assert (asked["min_replicas"], asked["on_replica_failure"]) == (1, "continue")
    assert asked["reruns"]["user-code"] == {"max_reruns": 2}


def test_the_workspace_is_the_source(torchx: TorchX, stack: Deployed, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("WORD = 'shipped'\n")
    (tmp_path / "train.py").write_text(
        "import helper, os\n"
        "print(helper.WORD, os.path.exists('left.txt'), os.environ['WORLD_SIZE'], os.environ['SM_MODEL_DIR'])\n"
    )
    (tmp_path / "left.txt").touch()
    (tmp_path / ".torchxignore").write_text("left*\n")
    place = ("--workspace", str(tmp_path))
    handle = torchx.run(
        "--wait", *place, "-cfg", "torchrun=true", "utils.python", "--image", IMAGE, "--script", "train.py"
    )
    logged = torchx("log", "--regex", "shipped", handle).stdout
    assert re.search(r" shipped False 1 /\S+/model$", logged, re.MULTILINE), logged
    missing = torchx("run", "-s", "muster", *place, "utils.python", "--image", IMAGE, "--script", "trian.py")
    assert missing.returncode == 1
    assert "entrypoint: there is no file trian.py in" in missing.stderr
    assert "did you mean train.py?" in missing.stderr


def test_an_application_is_cancelled(torchx: TorchX, stack: Deployed) -> None:
    handle = torchx.run("utils.sh", "--image", IMAGE, "sleep", "100")
    app = handle.rpartition("/")[2]
    stack.run(app).wait_for_status(0, 1, "Training")
    wait_until("its state", lambda: "RUNNING" in torchx("status", handle).stdout)
    assert torchx("cancel", handle).returncode == 0
    stack.run(app).wait()
    wait_until("its state", lambda: "CANCELLED" in torchx("status", handle).stdout)


def test_a_ranks_torchrun_is_its_own_and_a_rerun_has_the_same_rank(torchx: TorchX, stack: Deployed) -> None:
    script = stack.gates / "told.py"
    script.write_text(
        "import os, sys\n"
        "print('told', *sys.argv[1:], *(os.environ[name] for name in ('SAID', 'RANK', 'WORLD_SIZE')), flush=True)\n"
    )
    stack.cloud.faults.add(Crash(job="*-r1-a1", after_seconds=0))
    # Two of its processes in each replica, which share this machine and so its ports.
    script_and_arguments = ("--script", str(script), "--", "${replica_id}")
    placed = ("-j", "2x2", "--image", IMAGE, "--env", "SAID=${replica_id}", *script_and_arguments)
    handle = torchx.run("--wait", "-cfg", f"spec={_with_reruns(stack)}", "dist.ddp", *placed)
    logged = torchx("log", "--regex", "^.*told", handle).stdout
    lines = [line.partition("told ")[2] for line in logged.splitlines()]
    assert set(lines) == {f"{rank} {rank} {process} 2" for rank in (0, 1) for process in (0, 1)}
    assert stack.run(handle.rpartition("/")[2]).statuses()["r1-a2"] == "Completed"


@pytest.mark.parametrize("server", ["nightly"], indirect=True)  # what is held here is Muster's alone
def test_a_failed_application_goes_on_under_its_id_while_it_is_waited_for(torchx: TorchX, stack: Deployed) -> None:
    mark = stack.gates / f"tried-{uuid4().hex}"
    # For some seconds the failed run has no continuation.
    late = stack.cloud.faults.add(
        CallError(service="s3", operation="PutObject", resource="*/continued_by.json", count=3)
    )
    fails_once = f"echo attempt; test -e {mark} || {{ touch {mark}; exit 3; }}"
    wait = ("run", "-s", "muster", "--wait", "--log", "utils.sh", "--image", IMAGE, "--max_retries", "1")
    answer = torchx(*wait, "bash", "-c", fails_once)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("sh/0 attempt") == 2
    status = torchx("status", answer.stdout.split()[0])
    assert (status.stdout.count("SUCCEEDED"), late.fired) == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("two_roles.py:two",), "roles: found 2; all replicas of a run have the same role: run each role separately."),
        (
            (*DDP, "--mounts", "type=bind,src=/host,dst=/job"),
            "mounts: found /job; a training job reads its data from channels: set",
        ),
        (
            ("-cfg", "git_config=repo:x", "utils.echo"),
            "git_config: found a mapping of 1 value; name a folder of a clone",
        ),
        (("-cfg", "max_run=0,volume_size=0", "utils.echo"), "max_runtime_seconds: found 0; at least 1; raise it"),
        (("-cfg", "stack=Nowhere", "utils.echo"), "There is no stack named Nowhere in us-east-1: deploy it"),
        (("-cfg", "profile=nobody", "utils.echo"), "No usable AWS credentials: The config profile (nobody)"),
        (("utils.echo", "--msg", "x" * 30_000), "a training job takes at most 25,600. Put the command into a script"),
    ],
    ids=["several roles", "mount", "option", "spec", "stack", "profile", "long command"],
)
def test_what_cannot_be_run_is_told_without_a_traceback(
    torchx: TorchX, stack: Deployed, arguments: tuple[str, ...], told: str
) -> None:
    (stack.gates / "two_roles.py").write_text(TWO_ROLES)
    answer = torchx("run", "-s", "muster", *arguments)
    assert (answer.returncode, "Traceback" in answer.stderr, told in answer.stderr) == (1, False, True), answer.stderr
    assert stack.calls("StartExecution") == 0


@pytest.mark.parametrize(
    "command",
    [
        ("status", "muster://torchx/nobody"),
        ("describe", "muster://torchx/nobody"),
        ("log", "muster://torchx/nobody/app/0"),
        ("cancel", "muster://torchx/nobody"),
        ("list", "-s", "muster"),
    ],
    ids=lambda command: command[0],
)
def test_a_missing_stack_is_one_line_where_torchx_catches_nothing(torchx: TorchX, command: tuple[str, ...]) -> None:
    answer = torchx(*command, MUSTER_STACK="Elsewhere")
    assert (answer.returncode, "Traceback" in answer.stderr) == (1, False), answer.stderr
    assert answer.stderr.count("There is no stack named Elsewhere in us-east-1") == 1


def _with_reruns(stack: Deployed) -> str:
    file = stack.gates / "reruns.yaml"
    file.write_text("reruns: {user-code: {max_reruns: 1}}\n")
    return str(file)
