"""Every command with --json prints what docs/json.md promises to scripts, and nothing else."""

import gc
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from docs.commands_reference import ANSWERS, PASSES_ON, answer_of, commands
from muster.client.cli import json_answers as answers
from muster.client.cli import program as cli
from tests.support.deployed import Deployed
from tests.support.workshop import turn_to

Ask = Callable[..., list[dict[str, Any]]]
_names = itertools.count(1)


def hold(line: str, model: type[BaseModel]) -> dict[str, Any]:
    """The document on `line`, which must have every field of `model` at every depth, and no other."""
    document: dict[str, Any] = json.loads(line)
    assert model.model_validate_json(line).model_dump(mode="json") == document
    return document


@pytest.fixture
def asked() -> set[str]:
    """The commands that were asked, by their words."""
    return set()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: set[str], tmp_path: Path) -> Ask:
    """Runs a command with --json as its entry point does, holds what it prints against its model, and gives it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gc, "freeze", lambda: None)  # a command keeps its garbage, since its process ends with it

    def run(path: str, *arguments: str, code: int = 0, fails: bool = False) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["muster", *path.split(), *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed, said = capsys.readouterr()
        assert (ended.value.code or 0, bool(said)) == (code, fails), f"{path}: {said or printed}"
        asked.add(path)
        model = answers.Failed if fails else answer_of(path)
        return [hold(line, model) for line in printed.splitlines()]

    return run


def test_the_commands_of_a_stack(
    stack: Deployed, ask: Ask, asked: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_to(monkeypatch, stack.cloud)
    told = f"told-{next(_names)}"
    stack.open_gate(told)
    spec = {**stack.gated(told, replicas=2), "name": told}
    (tmp_path / "run.json").write_text(json.dumps(spec))
    [plan] = ask("plan", "run.json")
    assert len(plan["requests"]) == 2
    assert ask("launch", "run.json") == [{"run": told, "parent": None}]
    watched = ask("status --watch", told)
    assert (watched[-1]["state"], watched[-1]["replicas"][1]["status"]) == ("succeeded", "Completed")
    assert ask("status", told) == watched[-1:]
    assert ask("result", told)[0]["verdict"] == "succeeded"
    # Its program is no trainer of Muster's.
    [refused] = ask("model", told, code=3, fails=True)
    assert refused["error"]["code"] == "Muster.NoModelError"
    assert told in {run["run"] for run in ask("list", "--state", "succeeded")[0]["runs"]}
    [ended] = [run for run in ask("list", "--name", f"{told[:-1]}*", "--since", "1d")[0]["runs"] if run["run"] == told]
    assert (ended["replicas"], ended["reruns"], ended["failures"]) == (2, 0, [])
    assert ended["usd"] == pytest.approx(0.0, abs=0.1)
    assert ask("list --html", "runs.html", "--limit", "1")[0]["bytes"] == (tmp_path / "runs.html").stat().st_size
    ask("list", "--state", "lost", code=2, fails=True)
    assert {line["message"] for line in ask("logs", told)} == {f"waiting for {told}"}
    assert ask("events", told)[0]["events"][0]["kind"] == "run-started"
    assert ask("cancel", told) == [{"run": told, "stopped": []}]
    assert ask("scale", told, "3", code=2, fails=True)[0]["error"]["code"] == "Muster.ScaleError"
    assert ask("report", told)[0]["bytes"] == (tmp_path / f"{told}.html").stat().st_size
    assert ask("verify", "--no-run")[0]["checks"][0]["outcome"] == "ok"
    good, bad = (stack.letters.send(json.dumps(event)) for event in ({"run": told, "timer": "deadline"}, {}))
    listed = {one["id"]: one["function"] for one in ask("deadletters list")[0]["letters"]}
    assert (listed[good], listed[bad]) == ("timer", None)
    [replayed] = ask("deadletters replay", good, bad, code=1)
    assert ([one["id"] for one in replayed["replayed"]], [one["id"] for one in replayed["kept"]]) == ([good], [bad])
    ask("deadletters drop", "--all", code=2, fails=True)
    assert ask("deadletters drop", bad, "--yes") == [{"dropped": replayed["kept"]}]
    assert any(action == "s3:GetObject" for one in ask("policy")[0]["policy"]["Statement"] for action in one["Action"])
    assert {one["gpu"] for one in ask("gpus")[0]["types"]} >= {"H100"}
    assert ask("continue", told) == [{"run": f"{told}-x2", "parent": told}]
    assert ask("continue --watch", told)[-1]["state"] == "succeeded"
    assert (
        ask("launch --watch", "run.json", "--name", f"{told}-again", "--stack", "Muster")[-1]["run"] == f"{told}-again"
    )
    [compared] = ask("compare", told, f"{told}-again")
    assert (compared["b"]["state"], compared["spec"]) == ("succeeded", [])
    ask("compare", told, told, code=2, fails=True)
    assert ask("init")[0] == {"files": ["run.yaml", "training.py"], "text": None}
    assert ask("init", "-")[0]["text"] == (tmp_path / "run.yaml").read_text(encoding="utf-8")

    server = subprocess.Popen(
        [sys.executable, "-m", "muster.client.cli.program", "ui", told, "--json"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    with server.stdout as printed:
        assert hold(printed.readline(), answers.PageServed)["url"].startswith("http://127.0.0.1:")
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 0
    # tests/release/deploy and tests/release/wheel deploy, write and destroy stacks of their own, and
    # tests/unit/client/recipes/test_recipe_commands.py asks what needs no stack.
    elsewhere = {"local", "faults", "deploy", "template", "destroy", "recipe"}
    assert asked == {path for path in ANSWERS if path.split()[0] not in elsewhere} - {"ui"}


def test_the_commands_of_the_embedded_cloud(ask: Ask, asked: set[str], tmp_path: Path) -> None:
    assert ask("local status", code=3, fails=True)[0]["error"]["code"] == "Muster.NotRunningError"
    [up] = ask("local up", "--port", "0", "--places", "--place", "oregon=us-west-2")
    try:
        assert ask("local status") == [up]
        assert ask("local links") == [{"links": []}]
        assert ask("local env")[0]["set"]["AWS_ENDPOINT_URL"] == up["endpoint"]
        options = {
            "throttle": ["--count", "2"],
            "call-error": ["s3", "PutObject"],
            "event": ["drop", "nobody"],
            "small-volume": ["nobody", "--gigabyte-bytes", "1000"],
            "rule-issue": ["nobody"],
            "kubernetes-error": ["create", "pods"],
            "partition": ["nobody", "none"],
            "slow-link": ["nobody", "none"],
            "price": ["nobody", "ml.g5.xlarge", "--usd-per-hour", "1"],
        }
        kinds = [path for path, _ in commands() if path.startswith("faults ")]
        placed = [
            ask(path, *options.get(path.split()[1], ["nobody"]))[0]["faults"]
            for path in kinds
            if path not in {"faults list", "faults clear"}
        ]
        assert [len(faults) for faults in placed] == [1] * 22
        assert ask("faults list") == [{"faults": [fault for faults in placed for fault in faults]}]
        assert ask("faults clear", "3") == [{"cleared": [3]}]
        assert ask("faults clear") == [{"cleared": [1, 2, *range(4, 23)]}]
    finally:
        assert ask("local down") == [{"endpoint": up["endpoint"]}]
    assert asked == {path for path, _ in commands() if path.split()[0] in {"local", "faults"}} - {PASSES_ON}
