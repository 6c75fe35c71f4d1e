"""`muster` against the deployed stack where it lasts: runs that are watched, followed, failed and continued.

tests/e2e/test_json_answers.py asks every command; what they say is held by tests/unit/client.
"""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_server import Command, CommandServer
from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE

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
        """The output of `muster ARGUMENTS`, which ends with `code`."""
        ended = self.start(*arguments, stdin=stdin).finish()
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture
def muster(stack: Deployed, commands: CommandServer) -> Shell:
    return Shell(stack, commands)


@pytest.fixture
def name() -> str:
    return f"cli-{next(_names)}"


def test_a_run_that_fails_is_told_by_exit_codes_and_goes_on(stack: Deployed, muster: Shell, name: str) -> None:
    kwargs = {"rounds": 4, "fail_after": 2}
    spec = {"name": name, "replicas": 2, "trainer": "tests.support.jobs.resuming:train", "kwargs": kwargs}
    output = muster("launch", "-", "--watch", "--json", stdin={**spec, **EACH_ENDS_ALONE}, code=1)
    last = json.loads(output.splitlines()[-1])
    assert (last["run"], last["state"], last["replicas"][0]["ends"]) == (name, "failed", ["user-code"])
    assert last["page"] == f"s3://{stack.bucket}/control/{name}/report.html"
    assert "Failed: user-code: " in muster("result", name, code=1)
    assert muster("logs", name, "--rank", "1", "--regex", "round 3 is broken").startswith("   1 | ")
    told = [(one["kind"], one["round"]) for one in json.loads(muster("events", name, "--json"))["events"]]
    assert {("replica-ended", None), ("round-committed", 2)} <= set(told)
    for _ in range(2):
        assert json.loads(muster("rerun", name, "--json")) == {"run": f"{name}-x2", "parent": name}
    last = json.loads(muster("status", f"{name}-x2", "--watch", "--json").splitlines()[-1])
    assert (last["state"], last["parent"], last["round"]) == ("succeeded", name, 4)


def test_a_run_is_watched_and_followed_until_it_succeeds(stack: Deployed, muster: Shell, name: str) -> None:
    muster("launch", "-", stdin={"name": name, **stack.gated(name, replicas=3)})
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
