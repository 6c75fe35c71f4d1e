"""What `muster destroy` stops, leaves alone and refuses, decided without a cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import boto3
import pytest
from moto import mock_aws

from muster.client.client_errors import RefusedError
from muster.client.sdk import Muster
from muster.contract.aws.partitions import Locality
from muster.contract.names import TAG_ATTEMPT, TAG_PLAN, TAG_RANK, TAG_RUN, JobName
from muster.contract.run.orphans import ActiveJob
from muster.infra.deploy import destroy_command
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.cdk_tools import DeployError
from muster.infra.deploy.deployed_template import rules, timer_function
from muster.infra.deploy.destroy_command import (
    BucketLeftError,
    RunsRunningError,
    delete_bucket,
    quieten,
    rules_if_it_stays,
    stop,
)
from muster.infra.deploy.destruction import Destruction, Unfinished

PLACE = Locality("aws", "us-east-1", "123456789012")
OUTPUTS = {"BucketName": "data", "JobPrefix": "muster", "StateMachineArn": "arn:machine"}
STACK = DeployedStack("Muster", "CREATE_COMPLETE", OUTPUTS)


class Jobs(Account):
    """An account with these training jobs, each with its tags."""

    def __init__(self, jobs: Mapping[JobName, dict[str, str]]) -> None:
        super().__init__(boto3.Session(region_name="us-east-1"))
        self.jobs = jobs

    def running_runs(self, machine: str) -> list[str]:
        assert machine == OUTPUTS["StateMachineArn"]
        return ["night"]

    def active_jobs(self, prefix: str) -> Iterator[ActiveJob]:
        assert prefix == "muster"
        return (ActiveJob(job, str(job), datetime.now(UTC)) for job in self.jobs)

    def job_tags(self, arn: str) -> dict[str, str]:
        return next(tags for job, tags in self.jobs.items() if str(job) == arn)


class Scripted(Destruction):
    """A deletion that finds `looks` one after the other, fails with `failure`, and notes what it does."""

    def __init__(
        self, looks: Sequence[Unfinished | Exception], failure: BaseException | None = None, status: str = "CREATED"
    ) -> None:
        super().__init__(Account(boto3.Session(region_name="us-east-1")), STACK, PLACE)
        self.__dict__.update(looks=list(looks), failure=failure, status=status, done=[])

    def unfinished(self) -> Unfinished:
        look = self.__dict__["looks"].pop(0)
        if isinstance(look, Exception):
            raise look
        return cast("Unfinished", look)

    def stop_job(self, name: str) -> None:
        self.done.append(f"stop {name}")

    def disable_rules(self) -> None:
        self.done.append("disable")

    def enable_rules(self) -> None:
        self.done.append("enable")

    def delete_timers(self) -> None:
        self.done.append("timers")

    def delete_stack(self) -> None:
        self.done.append("delete")
        self.delete_bucket()

    def delete_bucket(self) -> None:
        if self.__dict__["failure"] is not None:
            raise self.__dict__["failure"]

    def _status(self, identity: str) -> str:
        return str(self.__dict__["status"])

    @property
    def done(self) -> list[str]:
        found: list[str] = self.__dict__["done"]
        return found


class Runs:
    """The runs of a stack, which end when they are cancelled."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def run(self, name: str) -> Runs:
        self.calls.append(name)
        return self

    def cancel(self) -> None:
        self.calls.append("cancelled")

    def wait(self, _seconds: float) -> None:
        self.calls.append("ended")


def muster_of(runs: Runs) -> Muster:
    return cast("Muster", runs)


def destroy(work: Destruction) -> None:
    with rules_if_it_stays(work):
        quieten(work, None)
        work.delete_stack()


def test_only_jobs_with_the_tags_of_their_name_are_musters() -> None:
    orphan, imitation = JobName("muster", "gone", 0, 2), JobName("muster", "other", 1, 1)
    tags = {TAG_RUN: "gone", TAG_RANK: "0", TAG_ATTEMPT: "2", TAG_PLAN: "abc"}
    found = Destruction(Jobs({orphan: tags, imitation: {**tags, "team": "other"}}), STACK, PLACE).unfinished()
    assert found == Unfinished(("night",), (str(orphan),), (str(imitation),))
    assert found.blocking == ["night", str(orphan)]


def test_a_job_without_a_running_run_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destroy_command, "_POLL_SECONDS", 0.0)
    jobs = Unfinished(jobs=("muster-gone-r0-a2",))
    work = Scripted([jobs, Unfinished()])
    stop(work, muster_of(Runs()), jobs)
    assert work.done == ["stop muster-gone-r0-a2"]


def test_a_run_that_starts_after_the_question_keeps_the_stack() -> None:
    work = Scripted([Unfinished(runs=("late",))])
    with pytest.raises(RunsRunningError, match="late"):
        destroy(work)
    assert work.done == ["disable", "enable"]  # the timers stay


def test_with_stop_runs_such_a_run_is_stopped_as_well() -> None:
    runs = Runs()
    work = Scripted([Unfinished(runs=("late",)), Unfinished(), Unfinished()])
    assert quieten(work, muster_of(runs)) == ["late"]
    assert runs.calls == ["late", "cancelled", "late", "ended"]
    assert work.done == ["disable", "enable", "disable", "timers"]


def test_a_stack_that_stays_gets_its_rules_back_and_one_that_is_being_deleted_does_not() -> None:
    refused = RefusedError("DeleteStack: ValidationError", "no")
    for looks, failure, status, expected in (
        ([refused], None, "UPDATE_COMPLETE", ["disable", "enable"]),
        ([Unfinished()], refused, "UPDATE_COMPLETE", ["disable", "timers", "delete", "enable"]),
        ([Unfinished()], KeyboardInterrupt(), "UPDATE_COMPLETE", ["disable", "timers", "delete", "enable"]),
        ([Unfinished()], KeyboardInterrupt(), "DELETE_IN_PROGRESS", ["disable", "timers", "delete"]),
        ([Unfinished()], DeployError("not deleted"), "DELETE_FAILED", ["disable", "timers", "delete"]),
    ):
        work = Scripted(looks, failure, status)
        with pytest.raises(type(failure or refused)):
            destroy(work)
        assert work.done == expected, (failure, status)


def test_a_deletion_that_has_failed_can_be_repeated() -> None:
    resources = {name: {"Type": "AWS::Events::Rule", "Properties": {}} for name in ("Gone", "Left")}
    with mock_aws():
        session = boto3.Session(region_name="us-east-1")
        events = session.client("events")
        events.put_rule(Name="left", ScheduleExpression="rate(6 hours)")
        account = Account(session)
        work = Destruction(account, replace(STACK, template={"Resources": resources}), PLACE)
        vars(work)["_physical"] = {"Gone": "gone", "Left": "left"}
        work.disable_rules()
        assert events.describe_rule(Name="left")["State"] == "DISABLED"
        assert account.running_runs("arn:aws:states:us-east-1:123456789012:stateMachine:gone") == []


def test_a_bucket_that_stays_by_mistake_is_left_with_its_command() -> None:
    for failure in (RefusedError("DeleteBucket: Conflict", "not empty"), KeyboardInterrupt()):
        with pytest.raises(BucketLeftError) as left:
            delete_bucket(Scripted([], failure), "work")
        assert str(left.value).endswith("aws s3 rb s3://data --force --region us-east-1 --profile work")


def test_a_template_names_the_timers_function_and_the_rules() -> None:
    variables: dict[str, Any] = {"MUSTER_TIMER_FUNCTION_ARN": {"Fn::GetAtt": ["Timer", "Arn"]}}
    template = {
        "Resources": {
            "Plan": {"Type": "AWS::Lambda::Function", "Properties": {"Environment": {"Variables": variables}}},
            "Sweep": {"Type": "AWS::Events::Rule", "Properties": {"ScheduleExpression": "rate(6 hours)"}},
            "Requests": {"Type": "AWS::Events::Rule", "Properties": {"EventBusName": {"Ref": "Bus"}}},
        }
    }
    assert timer_function(template) == "Timer"
    assert timer_function({}) is None
    assert rules(template) == {"Sweep": None, "Requests": "Bus"}
