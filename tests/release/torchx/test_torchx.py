"""TorchX's own command line against the deployed stack, in both versions: options, workspaces, what fails."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from muster.local.faults import CallError, Crash
from muster.options.torchx.client.options import FORMER, OWN
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed
from tests.support.torchx_program import IMAGE, TorchX, torchx_server
from tests.support.workshop import own_calls

DRY_RUNS = """
# What becomes of a workspace: the folder of the program.
import dataclasses, json, os, sys
from pathlib import Path
from torchx.components.dist import ddp
from torchx.runner import get_runner
from torchx.specs import AppDef, Role

folder = Path(sys.argv[1])
answers = {}

def script(**fields):
    return AppDef("app", [Role("app", "image:1", entrypoint="python", args=["train.py"], **fields)])

with get_runner("session") as runner:
    def dry(name, app, workspace=None, **options):
        try:
            request = runner.dryrun(app, "muster", options, workspace=workspace).request
        except Exception as error:
            answers[name] = {"error": str(error)}
            return
        answers[name] = json.loads(json.dumps(dataclasses.asdict(request)))
        source = request.spec.get("source_dir")
        answers[name]["files"] = sorted(os.listdir(source)) if source else None

    dry("uri", script(), f"file://{folder}")
    dry("option", script(), str(folder), source_dir=str(folder / "other"), stack="Own")
    dry("empty", script(), str(folder / "empty"))
    dry("home", script(), os.path.expanduser("~"))
    dry("ddp", ddp(image="image:1", script="trian.py", j="2x1"), str(folder))
    if hasattr(script().roles[0], "workspace"):
        from torchx.specs import Workspace
        mapped = Workspace({str(folder): "", str(folder / "other"): "inner"})
        dry("mapped", script(workspace=mapped))
print(json.dumps(answers))
"""

TWO_ROLES = """
from torchx.specs import AppDef, Role

def two() -> AppDef:
    return AppDef("two", [Role(name, "", entrypoint="true") for name in ("a", "b")])
"""

Server = tuple[str, CommandServer]


@pytest.fixture(scope="module", params=["stable", "nightly"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with torchx_server(request.param, tmp_path_factory.mktemp("torchx")) as running:
        yield request.param, running


@pytest.fixture
def torchx(server: Server, stack: Deployed) -> TorchX:
    version, running = server
    return TorchX(running, version, stack)


def test_options_are_told_and_read_and_a_dry_run_calls_nothing_and_leaves_nothing(
    torchx: TorchX, stack: Deployed, tmp_path: Path
) -> None:
    listed = torchx.process("torchx", "runopts", "muster")
    assert [option.name for option in (*FORMER, *OWN) if f"    {option.name}=" not in listed] == []
    (tmp_path / "train.py").touch()
    (tmp_path / ".torchxconfig").write_text("[muster]\nmax_run = 600\nvolume_size = 7\nsource_dir = .\n")
    before = sorted(tmp_path.rglob("*"))
    calls = own_calls(stack.cloud)
    options = "max_run=60,subnets=subnet-1;subnet-2,security_group_ids=sg-1,set=spot:true;rendezvous.grace_seconds:30"
    dry = ("run", "-s", "muster", "--dryrun", "-cfg", options)
    # TorchX reads where its settings are when it is imported.
    answer = torchx.process("torchx", *dry, "utils.python", "--image", "", "--script", "train.py", folder=tmp_path)
    told = yaml.safe_load(answer.partition("=== SCHEDULER REQUEST ===")[2])
    assert (told["max_runtime_seconds"], told["volume_gb"], told["source_dir"]) == (60, 7, ".")
    assert (told["spot"], told["rendezvous"]) == (True, {"grace_seconds": 30.0})
    assert told["vpc_config"] == {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}
    assert (sorted(tmp_path.rglob("*")), own_calls(stack.cloud)) == (before, calls)


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


def test_a_workspace_becomes_the_source_or_is_refused(torchx: TorchX, server: Server, tmp_path: Path) -> None:
    for name in ("train.py", "other/train.py", "other/helper.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    answers = json.loads(torchx.process("python", "-W", "ignore", "-c", DRY_RUNS, str(tmp_path)).splitlines()[-1])
    sources = {"uri": str(tmp_path), "option": f"{tmp_path}/other"}
    assert {name: answers[name]["spec"]["source_dir"] for name in sources} == sources
    assert (answers["option"]["stack"], answers["option"]["spec"]["image"]) == ("Own", "image:1")
    assert answers["empty"]["files"] is None
    # TorchX 0.7.0 knows no workspace of a role.
    expected = {"train.py", "inner"} if server[0] == "nightly" else set()
    assert expected <= set(answers.get("mapped", {"files": []})["files"])
    assert f"workspace: found {Path.home()}" in answers["home"]["error"]
    assert f"trian.py in {tmp_path}; did you mean train.py?" in answers["ddp"]["error"]


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
    reruns = stack.gates / "reruns.yaml"
    reruns.write_text("reruns: {user-code: {max_reruns: 1}}\n")
    handle = torchx.run("--wait", "-cfg", f"spec={reruns}", "dist.ddp", *placed)
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


WRONG = {
    "roles: found 2": ("two_roles.py:two",),
    "There is no stack named Nowhere": ("-cfg", "stack=Nowhere", "utils.echo"),
    "No usable AWS credentials": ("-cfg", "profile=nobody", "utils.echo"),
}


def test_what_cannot_be_run_is_told_without_a_traceback(torchx: TorchX, stack: Deployed) -> None:
    (stack.gates / "two_roles.py").write_text(TWO_ROLES)
    for told, arguments in WRONG.items():
        answer = torchx("run", "-s", "muster", *arguments)
        shown = (answer.returncode, "Traceback" in answer.stderr, told in answer.stderr)
        assert shown == (1, False, True), f"{told}: {answer.stderr}"
    assert stack.calls("StartExecution") == 0


def test_a_missing_stack_is_one_line_where_torchx_catches_nothing(torchx: TorchX) -> None:
    app = "muster://torchx/nobody"
    for command in (
        ("status", app),
        ("describe", app),
        ("log", f"{app}/app/0"),
        ("cancel", app),
        ("list", "-s", "muster"),
    ):
        answer = torchx(*command, MUSTER_STACK="Elsewhere")
        assert (answer.returncode, "Traceback" in answer.stderr) == (1, False), f"{command}: {answer.stderr}"
        assert answer.stderr.count("There is no stack named Elsewhere") == 1, command
