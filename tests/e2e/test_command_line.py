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

from muster.local.faults import Crash, QuotaError, SpotInterruption
from tests.support.command_server import Command, CommandServer
from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE
from tests.support.page_data import unpacked
from tests.support.waiting import wait_until

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

    def __call__(self, *arguments: str, stdin: Any = None) -> tuple[int, str, str]:
        """The exit code, the output and the errors of `muster ARGUMENTS`."""
        ended = self.start(*arguments, stdin=stdin).finish()
        return ended.returncode, ended.stdout, ended.stderr

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


def test_a_run_that_succeeds_is_watched_to_its_end(stack: Deployed, muster: Shell, name: str) -> None:
    stack.open_gate(name)
    code, output, errors = muster("launch", "-", "--watch", stdin={"name": name, **stack.gated(name, replicas=2)})
    assert code == 0, errors
    assert "replica 1 attempt 1 Completed" in output
    assert output.rstrip().endswith(f"run {name} succeeded: 2 of 2 replicas succeeded")
    code, output, _ = muster("status", name)
    assert code == 0
    assert output.startswith(f"{name}: succeeded")
    code, output, _ = muster("result", name, "--json")
    assert (code, json.loads(output)["verdict"]) == (0, "succeeded")


def test_a_run_that_fails_ends_with_one_and_its_reason(stack: Deployed, muster: Shell, name: str) -> None:
    stack.open_gate(name)
    spec = {"name": name, **stack.gated(name, exit_code=7)}
    code, output, errors = muster("launch", "-", "--watch", "--json", stdin=spec)
    assert code == 1, errors
    last = json.loads(output.splitlines()[-1])
    assert (last["run"], last["state"], last["replicas"][0]["ends"]) == (name, "failed", ["user-code"])
    assert last["page"] == f"s3://{stack.bucket}/control/{name}/report.html"
    with muster.serving(name) as data:
        shown = data()
    assert shown["state"] == "failed"
    [attempt] = shown["replicas"][0]["attempts"]
    assert (attempt["failure_class"], attempt["job"]) == ("user-code", f"muster-{name}-r0-a1")
    assert attempt["reason"] == "AlgorithmError: , exit code: 7"
    assert "Training" in [step["secondary"] for step in attempt["history"]]
    code, output, _ = muster("result", name)
    assert code == 1
    assert "attempt 1 Failed: user-code: AlgorithmError" in output


def test_a_module_that_does_not_exist_is_named_in_the_result(stack: Deployed, muster: Shell, name: str) -> None:
    spec = {"name": name, "replicas": 1, "trainer": "no_such_package.training:train"}
    assert muster("launch", "-", "--watch", stdin=spec)[0] == 1
    code, output, _ = muster("result", name)
    assert code == 1
    assert "no_such_package" in output


def test_an_image_that_does_not_exist_is_named_in_the_result(stack: Deployed, muster: Shell, name: str) -> None:
    spec = {"name": name, "image": "nobody/nothing:1", **stack.gated(name)}
    assert muster("launch", "-", "--watch", stdin=spec)[0] == 1
    code, output, _ = muster("result", name)
    assert code == 1
    assert "nobody/nothing:1" in output


def test_interrupting_a_watch_leaves_the_run_alone(stack: Deployed, muster: Shell, name: str) -> None:
    watch = muster.start("launch", "-", "--watch", stdin={"name": name, **stack.gated(name)})
    next(line for line in watch.stdout if "Training" in line)
    watch.send_signal(signal.SIGINT)
    ended = watch.finish()
    assert ended.returncode == 130
    assert ended.stderr == f"The run {name} is still running. To stop it: `muster cancel {name}`.\n"
    with muster.serving(name) as data:
        shown = data()
    assert (shown["state"], "ended_at" in shown) == ("running", False)
    assert shown["verdict"].startswith("The run is in progress: 1 of 1 replicas have a job, 0 rounds.")
    assert shown["replicas"][0]["attempts"][0]["job"] == f"muster-{name}-r0-a1"


def test_names_that_are_taken_or_unknown_are_one_line(stack: Deployed, muster: Shell, name: str) -> None:
    spec = {"name": name, **stack.gated(name)}
    assert muster("launch", "-", stdin=spec)[:2] == (
        0,
        f"Started {name}: watch it with `muster status {name} --watch`.\n",
    )
    code, _, errors = muster("launch", "-", stdin={**spec, "replicas": 2})
    assert code == 2
    assert errors.startswith(f"muster: The run name {name} is already used")
    assert errors.count("\n") == 1
    code, _, errors = muster("status", "nobody")
    assert code == 2
    assert errors.startswith("muster: The stack Muster has no run named 'nobody'")
    code, _, errors = muster("result", name)
    assert code == 2
    assert errors == f"muster: The run {name} has no result yet: watch it with `muster status {name} --watch`.\n"


def test_a_run_without_a_plan_has_no_page_and_says_why(stack: Deployed, muster: Shell) -> None:
    run = stack.start({"replicas": 0})
    run.wait()
    for command in ("report", "ui"):
        code, _, errors = muster(command, run.name)
        assert code == 3
        assert errors.startswith(f"muster: The run {run.name} has no plan to show: Muster.SpecError")
        assert "Traceback" not in errors


def test_another_stack_is_found_or_told_to_be_missing(stack: Deployed, muster: Shell) -> None:
    code, _, errors = muster("status", "any", "--stack", "Nowhere")
    assert code == 3
    assert errors.startswith("muster: There is no stack named Nowhere in us-east-1: deploy it")


def test_a_run_is_listed_its_lines_and_events_are_told_and_it_goes_on(
    stack: Deployed, muster: Shell, name: str
) -> None:
    spec = {
        "name": name,
        "replicas": 2,
        "trainer": "tests.support.jobs.resuming:train",
        "kwargs": {"rounds": 4, "fail_after": 2},
        **EACH_ENDS_ALONE,
    }
    code, _, errors = muster("launch", "-", "--watch", stdin=spec)
    assert code == 1, errors

    code, output, _ = muster("list", "--state", "failed", "--json")
    listed = {run["run"]: run for run in json.loads(output)["runs"]}
    assert (code, listed[name]["state"], listed[name]["ended_at"] is not None) == (0, "failed", True)

    code, output, _ = muster("logs", name, "--json", "--regex", "the data of round 3 is broken")
    lines = [json.loads(line) for line in output.splitlines()]
    assert {line["rank"] for line in lines} == {0, 1}
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert muster("logs", name, "--rank", "1", "--regex", "is broken")[1].startswith("   1 | ")

    code, output, _ = muster("events", name, "--json")
    told = [(event["kind"], event["rank"], event["round"]) for event in json.loads(output)["events"]]
    assert told[0] == ("run-started", None, None)
    assert told[-1][0] in {"run-ended", "run-settled"}
    assert {("replica-launched", 1, None), ("replica-ended", 1, None), ("round-committed", None, 2)} <= set(told)

    code, output, errors = muster("rerun", name, "--json")
    assert (code, json.loads(output)) == (0, {"run": f"{name}-x2", "parent": name}), errors
    assert muster("rerun", name, "--json")[1] == output
    code, output, _ = muster("status", f"{name}-x2", "--watch", "--json")
    last = json.loads(output.splitlines()[-1])
    assert (code, last["state"], last["parent"], last["round"]) == (0, "succeeded", name, 4)


def test_events_tell_of_waits_interruptions_and_reruns(stack: Deployed, muster: Shell, name: str) -> None:
    stack.cloud.faults.add(QuotaError(job="*-r0-a1"))
    stack.cloud.faults.add(SpotInterruption(job="*-r1-a1", after_seconds=0.2))
    budgets = {"user-code": {"max_reruns": 1}, "quota": {"max_reruns": 1, "delay_seconds": 1}}
    spec = {"name": name, "spot": True, "reruns": budgets}
    assert muster("launch", "-", stdin={**spec, **stack.gated(name, replicas=2)})[0] == 0

    def told() -> set[tuple[str, int | None, int | None, str | None]]:
        code, output, errors = muster("events", name, "--json")
        assert code == 0, errors
        events = json.loads(output)["events"]
        return {(event["kind"], event["rank"], event["attempt"], event["failure_class"]) for event in events}

    wanted = {
        ("replica-waits", 0, 2, "quota"),
        ("replica-launched", 0, 2, None),
        ("replica-interrupted", 1, 1, None),
    }
    wait_until("what has happened to be told", lambda: wanted <= told())
    stack.cloud.faults.add(Crash(job="*-r1-a1"))
    wait_until("the rerun", lambda: {("replica-ended", 1, 1, "user-code"), ("replica-launched", 1, 2, None)} <= told())
    stack.open_gate(name)
    stack.run(name).wait()


def test_followed_lines_come_once_and_an_interrupt_leaves_the_run_alone(
    stack: Deployed, muster: Shell, name: str
) -> None:
    assert muster("launch", "-", stdin={"name": name, **stack.gated(name, replicas=3)})[0] == 0
    interrupted = muster.start("logs", name, "-f")
    whole = muster.start("logs", name, "--follow", "--json")
    next(line for line in interrupted.stdout if "waiting for" in line)
    interrupted.send_signal(signal.SIGINT)
    ended = interrupted.finish()
    assert ended.returncode == 130
    assert ended.stderr == f"The run {name} is still running. To stop it: `muster cancel {name}`.\n"
    code, _, errors = muster("rerun", name)
    assert (code, errors) == (
        2,
        f"muster: The run {name} has not ended: wait until it ends, or cancel it with `muster cancel {name}`.\n",
    )
    stack.open_gate(name)
    followed = whole.finish()
    assert followed.returncode == 0, followed.stderr
    lines = [json.loads(line) for line in followed.stdout.splitlines()]
    waiting = [line["rank"] for line in lines if line["message"] == f"waiting for {name}"]
    assert sorted(waiting) == [0, 1, 2]
    code, output, _ = muster("logs", name, "--json")
    assert sorted(map(str, lines)) == sorted(str(json.loads(line)) for line in output.splitlines())
    last = muster("logs", name, "--tail", "2", "--json")[1]
    assert last.splitlines() == output.splitlines()[-2:]
