"""`muster` against the deployed stack: what a user types, reads, and gets as an exit code."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.support.command_server import Command, CommandServer
from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE
from tests.support.page_data import unpacked

_names = itertools.count(1)


class Shell:
    """A user's shell that leads to the stack."""

    def __init__(self, stack: Deployed, commands: CommandServer) -> None:
        self._commands = commands
        self._environment = stack.cloud.environment(os.environ | {"COLUMNS": "120"})

    def start(self, *arguments: str, stdin: Any = None) -> Command:
        """Start `muster ARGUMENTS`."""
        given = "" if stdin is None else json.dumps(stdin)
        return self._commands.start(arguments, Path.cwd(), self._environment, given)

    def __call__(self, *arguments: str, stdin: Any = None, code: int = 0) -> str:
        """The output of `muster ARGUMENTS`, or its one line of error where it is refused; it ends with `code`."""
        ended = self.start(*arguments, stdin=stdin).finish()
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout if code in {0, 1} else ended.stderr

    @contextmanager
    def serving(self, name: str) -> Iterator[Callable[[], Any]]:
        """`muster ui` of a run; asks it for the data of its page. Ctrl-C ends it without a word."""
        command = self.start("ui", name, "--json")
        url = json.loads(command.stdout.readline())["url"]

        def data() -> Any:
            with urlopen(f"{url}data.json", timeout=60) as answer:  # noqa: S310 - our own server
                return unpacked(json.load(answer))

        yield data
        command.send_signal(signal.SIGINT)
        ended = command.finish()
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def muster(stack: Deployed, commands: CommandServer) -> Shell:
    return Shell(stack, commands)


@pytest.fixture
def name() -> str:
    return f"cli-{next(_names)}"


def test_a_run_that_fails_is_told_by_every_command_and_goes_on(stack: Deployed, muster: Shell, name: str) -> None:
    kwargs = {"rounds": 4, "fail_after": 2}
    spec = {"name": name, "replicas": 2, "trainer": "tests.support.jobs.resuming:train", "kwargs": kwargs}
    output = muster("launch", "-", "--watch", "--json", stdin={**spec, **EACH_ENDS_ALONE}, code=1)
    last = json.loads(output.splitlines()[-1])
    assert (last["run"], last["state"], last["replicas"][0]["ends"]) == (name, "failed", ["user-code"])
    assert last["page"] == f"s3://{stack.bucket}/control/{name}/report.html"
    assert "Failed: user-code: " in muster("result", name, code=1)
    listed = {run["run"]: run for run in json.loads(muster("list", "--state", "failed", "--json"))["runs"]}
    assert (listed[name]["state"], listed[name]["ended_at"] is not None) == ("failed", True)

    lines = list(map(json.loads, muster("logs", name, "--json", "--regex", "round 3 is broken").splitlines()))
    assert {line["rank"] for line in lines} == {0, 1}
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert muster("logs", name, "--rank", "1", "--regex", "is broken").startswith("   1 | ")
    events = json.loads(muster("events", name, "--json"))["events"]
    told = [(event["kind"], event["rank"], event["round"]) for event in events]
    assert told[0] == ("run-started", None, None)
    assert told[-1][0] in {"run-ended", "run-settled"}
    assert {("replica-launched", 1, None), ("replica-ended", 1, None), ("round-committed", None, 2)} <= set(told)

    for _ in range(2):
        assert json.loads(muster("rerun", name, "--json")) == {"run": f"{name}-x2", "parent": name}
    last = json.loads(muster("status", f"{name}-x2", "--watch", "--json").splitlines()[-1])
    assert (last["state"], last["parent"], last["round"]) == ("succeeded", name, 4)


def test_a_run_is_watched_and_followed_until_it_succeeds(stack: Deployed, muster: Shell, name: str) -> None:
    spec = {"name": name, **stack.gated(name, replicas=3)}
    muster("launch", "-", stdin=spec)
    with muster.serving(name) as data:
        shown = data()
    assert (shown["state"], "ended_at" in shown) == ("running", False)
    assert f"Started {name}: " in muster("launch", "-", stdin=spec), "the same run, once more"
    refused = {
        f"The run name {name} is already used": ("launch", "-"),
        "has no run named 'nobody'": ("status", "nobody"),
        f"`muster status {name} --watch`": ("result", name),
        f"`muster cancel {name}`": ("rerun", name),
    }
    for words, arguments in refused.items():
        error = muster(*arguments, stdin={**spec, "replicas": 2}, code=2)
        assert (words in error, error.startswith("muster: "), error.count("\n")) == (True, True, 1), error

    whole, watch = muster.start("logs", name, "--follow", "--json"), muster.start("status", name, "--watch")
    next(iter(whole.stdout))
    stack.open_gate(name)
    ended = watch.finish()
    assert "replica 1 attempt 1 Completed" in ended.stdout
    assert ended.stdout.rstrip().endswith(f"run {name} succeeded: 3 of 3 replicas succeeded")
    followed = whole.finish()
    assert (ended.returncode, followed.returncode) == (0, 0), ended.stderr + followed.stderr
    written = muster("logs", name, "--json").splitlines()
    # The first of them was read above.
    assert len(written) == len(followed.stdout.splitlines()) + 1
    assert set(followed.stdout.splitlines()) < set(written)
    assert muster("logs", name, "--tail", "2", "--json").splitlines() == written[-2:]
    assert json.loads(muster("result", name, "--json"))["verdict"] == "succeeded"
