"""Cancelling follows the continuations of a run, and waits for one that is about to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from muster.client.aws.cloud import Cloud
from muster.client.aws.deployed_stack import Stack
from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.errors import UnknownRunError
from muster.client.runs.cancellation import cancel
from muster.contract import timestamps
from muster.contract.document import Document
from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.continuation import Continuation
from muster.contract.run.plan import Place, Plan
from muster.contract.run.result import Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry
from muster.contract.spec.spec_reader import parse_spec

PLACE = Place(bucket="bucket", role_arn="role", job_prefix="muster", package_uri="s3://bucket/package")
SPEC = parse_spec({"replicas": 1, "trainer": "m:f", "image": "i", "rerun": {"on": ["failed"], "max": 1}})


@dataclass
class Account:
    """The runs of a stack in memory, behind the parts of a `Cloud` that cancelling uses."""

    running: dict[str, Execution] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    entries: dict[str, ReplicaEntry] = field(default_factory=dict)
    at_stop: Callable[[str], None] = lambda _: None
    stack = Stack("Muster", "machine", "bucket", "muster")

    @property
    def cloud(self) -> Cloud:
        return cast("Cloud", self)

    @property
    def executions(self) -> Account:
        return self

    objects = roll_ups = executions

    def describe(self, name: str) -> Execution:
        if name not in self.running:
            raise UnknownRunError(name, "Muster")
        return self.running[name]

    def stop(self, name: str, cause: str) -> bool:
        self.at_stop(name)
        if self.running[name].ended_at is not None:
            return False
        self.end(name, ExecutionStatus.ABORTED)
        return True

    def of_run(self, run: str) -> dict[int, ReplicaEntry]:
        return {0: self.entries[run]} if run in self.entries else {}

    def read(self, key: str) -> bytes | None:
        return self.stored.get(key)

    def find(self, key: str) -> str | None:
        return key if key in self.stored else None

    def keys_after(self, prefix: str, start_after: str) -> Iterator[str]:
        return iter(())

    def launch(self, name: str, parent: str | None = None, *, reruns: bool = False) -> None:
        now = datetime.now(UTC)
        self.running[name] = Execution(
            name, ExecutionStatus.RUNNING, now, None, 1, "", "", parent=parent, reruns=reruns
        )
        job = str(JobName("muster", name, 0, 1))
        attempt = Attempt(attempt=1, job=job, status="Completed", secondary="Completed")
        self.entries[name] = ReplicaEntry(rank=0, revision=1, attempts=(attempt,))

    def end(self, name: str, status: ExecutionStatus = ExecutionStatus.FAILED) -> None:
        changes = {"status": status, "ended_at": datetime.now(UTC)}
        self.running[name] = Execution(**{**vars(self.running[name]), **changes})

    def plan(self, name: str) -> None:
        self.put(
            RunLayout(name).plan,
            Plan.make(
                name,
                f"arn:aws:states:us-east-1:123456789012:execution:Muster:{name}",
                "2026-11-21T09:00:00Z",
                PLACE,
                SPEC,
            ),
        )

    def settle(self, name: str, verdict: Verdict = Verdict.FAILED) -> None:
        self.plan(name)
        now = timestamps.text(datetime.now(UTC))
        self.put(
            RunLayout(name).result,
            Result(run=name, verdict=verdict, reason="", settled_at=now, replicas=(), reruns=0),
        )

    def record(self, name: str, continuation: str) -> None:
        self.put(RunLayout(name).continued_by, Continuation(run=continuation, execution_arn="arn"))

    def put(self, key: str, document: Document) -> None:
        self.stored[key] = document.to_json()


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """What happens while the client waits, one step for each pause."""
    steps: list[Callable[[], Any]] = []
    monkeypatch.setattr("muster.client.runs.cancellation.time.sleep", lambda _: steps.pop(0)())
    return steps


def stopped(account: Account, run: str = "a") -> tuple[str, ...]:
    return cancel(account.cloud, run, poll_seconds=1).stopped


def test_a_run_that_has_not_ended_is_stopped_itself(account: Account) -> None:
    account.launch("a", reruns=True)
    assert stopped(account) == ("a",)
    assert stopped(account) == ()
    with pytest.raises(UnknownRunError):
        stopped(account, "b")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_continuation_that_a_user_has_started_is_stopped_however_the_run_ended(
    account: Account, verdict: Verdict
) -> None:
    account.launch("a")
    account.end("a")
    account.settle("a", verdict)
    account.launch("b", parent="a")
    account.record("a", "b")
    assert stopped(account) == ("b",)


def test_the_last_of_several_continuations_is_stopped(account: Account) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        account.launch(name, parent)
        if parent is not None:
            account.record(parent, name)
    account.end("a")
    account.end("b")
    assert stopped(account) == ("c",)


def test_a_continuation_that_is_not_recorded_yet_is_found_by_its_name(account: Account) -> None:
    account.launch("a")
    account.end("a")
    account.launch("a-x2", parent="a")
    assert stopped(account) == ("a-x2",)


def test_an_unrelated_run_with_the_next_name_is_left_alone(account: Account) -> None:
    account.launch("a")
    account.end("a")
    account.launch("a-x2")
    assert stopped(account) == ()
    assert account.describe("a-x2").ended_at is None


def test_a_continuation_that_the_rerun_policy_is_about_to_start_is_waited_for(
    account: Account, meanwhile: list[Callable[[], Any]]
) -> None:
    account.launch("a", reruns=True)
    account.end("a")
    meanwhile += [
        lambda: account.settle("a"),
        lambda: None,
        lambda: account.launch("a-x2", parent="a"),
    ]
    assert stopped(account) == ("a-x2",)
    assert meanwhile == []


def test_a_run_that_failed_before_its_first_launch_is_waited_for_until_it_is_settled(
    account: Account, meanwhile: list[Callable[[], Any]]
) -> None:
    account.launch("a", reruns=True)
    account.entries.clear()
    account.plan("a")
    account.end("a")
    meanwhile += [lambda: account.settle("a"), lambda: account.launch("a-x2", parent="a")]
    assert stopped(account) == ("a-x2",)
    assert meanwhile == []


def test_a_run_that_was_refused_is_not_waited_for(account: Account) -> None:
    account.launch("a", reruns=True)
    account.entries.clear()
    account.end("a")
    assert stopped(account) == ()


def test_a_continuation_that_is_there_once_the_run_is_stopped_is_stopped_as_well(account: Account) -> None:
    account.launch("a", reruns=True)
    account.at_stop = lambda name: account.launch("a-x2", parent="a") if name == "a" else None
    assert stopped(account) == ("a", "a-x2")


def test_a_settlement_after_which_the_policy_starts_nothing_ends_the_waiting(
    account: Account, meanwhile: list[Callable[[], Any]]
) -> None:
    account.launch("a", reruns=True)
    account.end("a")
    meanwhile += [lambda: account.settle("a", Verdict.SUCCEEDED)]
    assert stopped(account) == ()
    assert meanwhile == []


def test_a_run_that_fails_while_it_is_being_stopped_is_followed(account: Account) -> None:
    account.launch("a")
    account.launch("a-x2", parent="a")
    account.at_stop = lambda name: account.end("a") if name == "a" else None
    assert stopped(account) == ("a-x2",)
