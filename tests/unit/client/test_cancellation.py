"""Cancelling follows the continuations of a run, and waits for one that is about to start."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from muster.client.cli import launch_commands
from muster.client.cli.option_groups import StackOptions
from muster.client.client_errors import UnknownRunError
from muster.client.runs.cancellation import cancel
from muster.contract import timestamps
from muster.contract.document import Document
from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.continuation import Continuation
from muster.contract.run.plan import Place, Plan
from muster.contract.run.result import Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard
from muster.contract.spec.spec_reader import parse_spec
from tests.memory import Fault
from tests.memory.clock import VirtualClock
from tests.memory.cloud import MemoryCloud
from tests.support.memory_client import client_of, muster_of, put

PLACE = Place(bucket="bucket", role_arn="role", job_prefix="muster", package_uri="s3://bucket/package")
SPEC = {"replicas": 1, "trainer": "m:f", "image": "i"}
CONTINUED = {"continue": {"on": ["failed"], "max": 1}}


class Account:
    """The runs of a stack, each of one replica whose job has completed."""

    def __init__(self) -> None:
        self.cloud = MemoryCloud(clock=VirtualClock(datetime.now(UTC)))

    def put(self, key: str, document: Document) -> None:
        put(self.cloud, key, document.to_json())

    def launch(self, name: str, parent: str | None = None, *, policy: bool = False, trained: bool = True) -> None:
        given = {"name": name, **({"resume_from": parent} if parent else {}), **(CONTINUED if policy else {})}
        muster_of(self.cloud).launch({**SPEC, **given})
        attempt = Attempt(attempt=1, job=str(JobName("muster", name, 0, 1)), status="Completed", secondary="Completed")
        if trained:
            entry = ReplicaEntry(rank=0, revision=1, attempts=(attempt,))
            self.put(RunLayout(name).roll_up_shard(0), RollUpShard(run=name, replicas=(entry,)))

    def end(self, name: str) -> None:
        self.cloud.workflow.fail(name, "Muster.Failed")

    def plan(self, name: str) -> None:
        arn = self.cloud.workflow.execution_arn(name)
        spec = parse_spec({**SPEC, **CONTINUED})
        self.put(RunLayout(name).plan, Plan.make(name, arn, timestamps.text(datetime.now(UTC)), PLACE, spec))

    def settle(self, name: str, verdict: Verdict = Verdict.FAILED) -> None:
        self.plan(name)
        now = timestamps.text(datetime.now(UTC))
        result = Result(run=name, verdict=verdict, reason="", settled_at=now, replicas=(), reruns=0)
        self.put(RunLayout(name).result, result)

    def record(self, name: str, continuation: str) -> None:
        self.put(RunLayout(name).continued_by, Continuation(run=continuation, execution_arn="arn"))

    def cancel(self) -> tuple[str, ...]:
        """Cancel the run a; what was stopped."""
        return cancel(client_of(self.cloud), "a", poll_seconds=1).stopped


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """What happens while the client waits, one step for each pause."""
    steps: list[Callable[[], Any]] = []
    monkeypatch.setattr("muster.client.runs.cancellation.time.sleep", lambda _: steps.pop(0)())
    return steps


def test_a_run_that_has_not_ended_is_stopped_itself(account: Account) -> None:
    with pytest.raises(UnknownRunError):
        account.cancel()
    account.launch("a", policy=True)
    assert [account.cancel(), account.cancel()] == [("a",), ()]


def test_the_last_of_several_continuations_is_stopped_however_the_run_ended(account: Account) -> None:
    account.launch("a")
    account.end("a")
    account.settle("a", Verdict.SUCCEEDED)
    for name, parent in (("b", "a"), ("c", "b")):
        account.launch(name, parent)
        account.record(parent, name)
    account.end("b")
    assert account.cancel() == ("c",)


def test_a_continuation_that_is_not_recorded_yet_is_found_by_its_name_and_its_parent(account: Account) -> None:
    account.launch("a")
    account.end("a")
    account.launch("a-x2", parent="a")
    assert account.cancel() == ("a-x2",)
    unrelated = Account()
    unrelated.launch("a")
    unrelated.end("a")
    unrelated.launch("a-x2")
    assert (unrelated.cancel(), unrelated.cloud.workflow.status("a-x2")) == ((), "RUNNING")


def test_a_continuation_that_the_continuation_policy_is_about_to_start_is_waited_for(
    account: Account, meanwhile: list[Callable[[], Any]]
) -> None:
    account.launch("a", policy=True)
    account.end("a")
    meanwhile += [lambda: account.settle("a"), lambda: None, lambda: account.launch("a-x2", parent="a")]
    assert (account.cancel(), meanwhile) == (("a-x2",), [])
    # After another settlement the policy starts nothing, and after a refusal there is none.
    for trained in (True, False):
        other = Account()
        other.launch("a", policy=True, trained=trained)
        other.end("a")
        meanwhile += [lambda: other.settle("a", Verdict.SUCCEEDED)] if trained else []  # noqa: B023
        assert (other.cancel(), meanwhile) == ((), [])


def test_a_run_that_failed_before_its_first_launch_is_waited_for_until_it_is_settled(
    account: Account, meanwhile: list[Callable[[], Any]]
) -> None:
    account.launch("a", policy=True, trained=False)
    account.plan("a")
    account.end("a")
    meanwhile += [lambda: account.settle("a"), lambda: account.launch("a-x2", parent="a")]
    assert (account.cancel(), meanwhile) == (("a-x2",), [])


def test_a_continuation_that_is_there_once_the_run_is_stopped_is_stopped_as_well(account: Account) -> None:
    account.launch("a", policy=True)
    account.cloud.calls.inject(Fault("StopExecution", action=lambda: account.launch("a-x2", parent="a")))
    assert account.cancel() == ("a", "a-x2")


def test_a_run_that_fails_while_it_is_being_stopped_is_followed(account: Account) -> None:
    account.launch("a")
    account.launch("a-x2", parent="a")
    account.cloud.calls.inject(Fault("StopExecution", action=lambda: account.end("a")))
    assert account.cancel() == ("a-x2",)


@pytest.mark.parametrize(("verdict", "asks"), [(Verdict.SUCCEEDED, True), (Verdict.FAILED, False)])
def test_a_run_that_has_succeeded_is_not_continued_unasked(
    account: Account, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, asks: bool
) -> None:
    account.launch("a")
    account.settle("a", verdict)
    account.end("a")
    monkeypatch.setattr(StackOptions, "muster", lambda _: muster_of(account.cloud))
    app = typer.Typer()
    app.command()(launch_commands.continue_run)
    monkeypatch.setattr(launch_commands, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    answer = CliRunner().invoke(app, ["a"], input="n\n")
    assert ("a has succeeded. Start a run" in answer.output, "a is continued by a-x2" in answer.output) == (
        asks,
        not asks,
    )
    assert "a is continued by a-x2" in CliRunner().invoke(app, ["a", "--yes"]).output
