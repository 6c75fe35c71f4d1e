"""The SDK on the embedded cloud, with a stack of three outputs: finding it, starting, looking, cancelling, results."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from muster import Cancellation, Muster, MusterError, PickledSessionError, Run, RunState, RunStatus
from muster.client.aws.cloud import Cloud
from muster.client.errors import (
    DeniedError,
    ForeignStackError,
    NoResultError,
    StackNotFoundError,
    UnfinishedRunError,
    UnknownRunError,
    WaitTimeoutError,
)
from muster.client.launch.source_archive import pack
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit, Member
from muster.contract.run.result import Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, shard_of
from muster.local import LocalCloud
from muster.local.admin_client import PlacedFault
from muster.local.faults import CallError
from tests.support.client_stack import deploy
from tests.support.workshop import Workshop, own_calls, turn_to


@dataclass
class House:
    """A stack, the client that found it, and a run's spec under a name that no other test has."""

    workshop: Workshop
    stack: str
    muster: Muster
    spec: dict[str, Any]

    @property
    def run(self) -> str:
        return str(self.spec["name"])

    def put(self, key: str, body: bytes) -> None:
        self.workshop.s3.put_object(Bucket=self.workshop.bucket, Key=key, Body=body)

    def record(self, rank: int, *attempts: Attempt) -> None:
        """Write the roll-up's entry of a replica, as the control plane does."""
        entry = ReplicaEntry(rank=rank, revision=1, attempts=attempts)
        key = RunLayout(self.run).roll_up_shard(shard_of(rank, 2))
        self.put(key, RollUpShard(run=self.run, replicas=(entry,)).to_json())

    def commit_and_record(self) -> None:
        self.commit(2)
        self.record(1, Attempt(attempt=1, job=f"muster-{self.run}-r1-a1", status="Completed", secondary="Completed"))

    def calls(self, run: Run, before: Callable[[], object] = lambda: None) -> dict[str, int]:
        """The calls of a look at the run after `before`."""
        before()
        self.workshop.cloud.calls.reset()
        run.status()
        return dict(own_calls(self.workshop.cloud))

    def commit(self, round_: int) -> None:
        member = {"attempt": 1, "incarnation": 1, "epoch": 1, "weight": 1.0, "checksum": "0" * 8}
        members = tuple(Member(rank=rank, metrics={"loss": 1 / round_}, **member) for rank in range(2))
        commit = Commit(run=self.run, round=round_, committed_at="", count=1, members=members, epochs=(1, 1))
        self.put(f"{RunLayout(self.run).commits}{round_:08d}.json", commit.to_json())


@pytest.fixture
def house(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> House:
    turn_to(monkeypatch, workshop.cloud)
    stack = deploy(workshop)
    spec = {"name": workshop.name("digits"), "replicas": 2, "trainer": "package.module:train"}
    return House(workshop, stack, Muster(stack), spec)


def test_launching_starts_a_run_under_the_specs_name(house: House) -> None:
    run = house.muster.launch(house.spec)
    status = run.status()
    assert (run.name, status.state, len(status.replicas)) == (house.run, RunState.RUNNING, 2)


def test_launching_the_same_again_is_the_same_run_and_another_is_refused(house: House) -> None:
    house.muster.launch(house.spec)
    assert house.muster.launch(house.spec).name == house.run
    with pytest.raises(RunNameTakenError, match=f"The run name {house.run} is already used"):
        house.muster.launch({**house.spec, "replicas": 3})


def test_plan_looks_for_the_data_of_channels(house: House) -> None:
    bucket = house.workshop.bucket
    house.workshop.s3.put_object(Bucket=bucket, Key="data/one.csv", Body=b"1,2")

    def planned(*uris: str, kind: str = "S3Prefix") -> str:
        channels = [
            {"channel_name": f"c{index}", "data_source": {"s3_data_source": {"s3_uri": uri, "s3_data_type": kind}}}
            for index, uri in enumerate(uris)
        ]
        spec = {**house.spec, "image": "muster-local/python:latest", "input_data_config": channels}
        try:
            house.muster.plan(spec)
        except SpecError as error:
            return str(error)
        return ""

    assert planned(f"s3://{bucket}/data/", f"s3://{bucket}/data") == ""
    assert planned(f"s3://{bucket}/data/one.csv", kind="ManifestFile") == ""
    refused = planned(f"s3://{bucket}/data/", f"s3://{bucket}/nothing/", f"s3://no-{bucket}/data/")
    assert "has 2 problems" in refused
    field = "input_data_config.{}.data_source.s3_data_source.s3_uri"
    assert f"{field.format(1)}: found 's3://{bucket}/nothing/'; no object begins with it; correct the URI" in refused
    assert f"{field.format(2)}: found 's3://no-{bucket}/data/'; no such bucket" in refused
    assert "there is no such object" in planned(f"s3://{bucket}/two.csv", kind="ManifestFile")
    denied = CallError(service="s3", operation="ListObjectsV2", code="AccessDenied", status=403)
    house.workshop.cloud.faults.add(denied)
    assert planned(f"s3://{bucket}/nothing/") == ""


def test_a_role_is_found_by_its_name(house: House) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    arn = house.workshop.make_role([{"Effect": "Deny", "Action": ["*"], "Resource": "*"}], trust)
    run = house.muster.launch({**house.spec, "role_arn": arn.rpartition("/")[2]})
    assert run.spec()["role_arn"] == arn
    with pytest.raises(SpecError, match=r"role_arn: found 'nobody'; a role of the account \d+; correct the name"):
        house.muster.launch({**house.spec, "name": f"{house.run}-2", "role_arn": "nobody"})


def test_source_is_stored_once_and_anew_only_when_it_is_old(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print('training')")

    def launched(name: str) -> tuple[int, dict[str, Any]]:
        house.workshop.cloud.calls.reset()
        run = house.muster.launch({**house.spec, "name": name, "source_dir": str(tmp_path)})
        stored = own_calls(house.workshop.cloud)["PutObject"]
        arn = Cloud(house.stack, boto3.Session()).stack.execution_arn(run.name)
        answer = house.workshop.cloud.client("stepfunctions").describe_execution(executionArn=arn)
        return stored, json.loads(answer["input"])

    stored, first = launched(f"{house.run}-1")
    key = pack(tmp_path).key
    assert (stored, first["source_dir"]) == (1, f"s3://{house.workshop.bucket}/{key}")
    stored, again = launched(f"{house.run}-2")
    assert (stored, again["source_dir"]) == (0, first["source_dir"])
    before = house.workshop.s3.head_object(Bucket=house.workshop.bucket, Key=key)
    monkeypatch.setattr("muster.client.aws.bucket_objects.REFRESH_DAYS", -1)
    stored, _ = launched(f"{house.run}-3")
    after = house.workshop.s3.head_object(Bucket=house.workshop.bucket, Key=key)
    assert (stored, after["ETag"]) == (1, before["ETag"])


def test_a_broken_spec_never_reaches_the_cloud(house: House, cloud: LocalCloud) -> None:
    before = own_calls(cloud)
    with pytest.raises(SpecError, match="replicas"):
        house.muster.launch({**house.spec, "replicas": 0})
    assert own_calls(cloud) == before


def test_a_status_shows_what_the_roll_up_says(house: House) -> None:
    run = house.muster.launch(house.spec)
    failed = attempt(house, 1, 1, status="Failed", failure_class=FailureClass.USER_CODE)
    house.record(1, failed)
    assert [replica.status for replica in run.status().replicas] == [None, "Failed"]
    house.record(0, attempt(house, 0, 1, status="InProgress", secondary="Training"))
    house.record(1, failed, attempt(house, 1, 2, status="InProgress", secondary="Starting"))
    status = run.status()
    assert [(replica.rank, replica.attempt, replica.secondary) for replica in status.replicas] == [
        (0, 1, "Training"),
        (1, 2, "Starting"),
    ]
    assert (status.reruns, status.replicas[1].ends) == (1, (FailureClass.USER_CODE,))


def test_a_look_reads_what_has_changed_and_asks_sagemaker_for_nothing(house: House) -> None:
    run = house.muster.launch(house.spec)
    for rank in range(2):
        house.record(rank, attempt(house, rank, 1, status="InProgress", secondary="Training"))
    house.commit(1)
    first, idle, changed = house.calls(run), house.calls(run), house.calls(run, house.commit_and_record)
    assert first == {"DescribeExecution": 1, "ListObjectsV2": 2, "GetObject": 3}
    assert idle == {"DescribeExecution": 1, "ListObjectsV2": 2}
    assert changed == {"DescribeExecution": 1, "ListObjectsV2": 2, "GetObject": 2}


def attempt(house: House, rank: int, number: int, **fields: Any) -> Attempt:
    return Attempt(attempt=number, job=str(JobName("muster", house.run, rank, number)), **fields)


def test_a_status_has_the_newest_round(house: House) -> None:
    run = house.muster.launch(house.spec)
    assert run.status().round is None
    for round_ in (1, 2, 10):
        house.commit(round_)
    assert (run.status().round, run.status().replicas[1].metrics) == (10, {"loss": 0.1})
    house.commit(20)
    assert run.status().round == 20


def test_a_cancelled_run_ends_as_stopped(house: House) -> None:
    run = house.muster.launch(house.spec)
    with pytest.raises(UnfinishedRunError, match=f"muster status {house.run} --watch"):
        run.result()
    assert run.cancel().stopped == (house.run,)
    assert run.wait(timeout=60, poll_seconds=0.01).state is RunState.STOPPED
    assert run.cancel().stopped == ()
    with pytest.raises(NoResultError, match=f"The run {house.run} ended without a result"):
        run.result()


def test_cancelling_a_run_stops_the_continuation_that_trains_in_its_place(house: House) -> None:
    run = house.muster.launch(house.spec)
    run.cancel()
    continuation = run.rerun()
    assert run.cancel() == Cancellation(run=house.run, stopped=(continuation.name,))
    assert continuation.status().state is RunState.STOPPED
    assert run.cancel() == Cancellation(run=house.run, stopped=())


def test_runs_and_stacks_are_equal_by_name_and_survive_pickle(house: House) -> None:
    run = house.muster.launch(house.spec)
    same = pickle.loads(pickle.dumps(run))  # noqa: S301 - our own
    assert (same, hash(same), same.muster) == (run, hash(run), house.muster)
    assert same.status().state is RunState.RUNNING
    assert {run, same, house.muster.run("other"), Muster("Other").run(house.run)} == {
        run,
        house.muster.run("other"),
        Muster("Other").run(house.run),
    }
    assert Muster(house.stack, region="eu-west-1") != house.muster
    assert (repr(run), repr(house.muster)) == (
        f"Run({house.run!r}, Muster({house.stack!r}, region='us-east-1'))",
        f"Muster({house.stack!r}, region='us-east-1')",
    )
    given = Muster(house.stack, boto3.Session())
    assert given.run(house.run) != run
    for unpicklable in (given, given.run(house.run)):
        with pytest.raises(PickledSessionError, match="Create it with a profile or a region instead"):
            pickle.dumps(unpicklable)


def test_runs_are_shown_in_notebooks_and_so_is_what_went_wrong(house: House) -> None:
    run = house.muster.launch(house.spec)
    assert f"<p>{house.run}: running, " in run._repr_html_()
    assert run._repr_html_().count("<td>not launched</td>") == 2
    assert f"<td>{house.run}</td><td>running</td>" in house.muster._repr_html_()
    assert "has no run named &#x27;&lt;b&gt;&#x27;" in house.muster.run("<b>")._repr_html_()


def test_the_result_is_read_from_the_bucket_and_decides_the_state(house: House) -> None:
    run = house.muster.launch(house.spec)
    run.cancel()
    settled = Result(
        run=house.run,
        verdict=Verdict.FAILED,
        reason="replica 1 was lost",
        settled_at=timestamps.text(datetime.now(UTC)),
        replicas=(),
        reruns=0,
    )
    house.put(RunLayout(house.run).result, settled.to_json())
    status = run.status()
    assert (run.result(), status.state, status.reason) == (settled, RunState.FAILED, "replica 1 was lost")


def test_a_wait_ends_in_time_and_leaves_the_run_alone(house: House) -> None:
    run = house.muster.launch(house.spec)
    seen: list[Any] = []
    with pytest.raises(WaitTimeoutError, match="is still running"):
        run.wait(timeout=0.05, progress=seen.append, poll_seconds=0.02)
    assert seen[-1].state is RunState.RUNNING


def test_a_wait_goes_on_through_an_outage(house: House, cloud: LocalCloud) -> None:
    run = house.muster.launch(house.spec)
    attempts = 3  # of the AWS SDK, before it gives a call up
    outage = CallError(service="states", operation="DescribeExecution", disconnect=True, count=attempts)
    placed: list[PlacedFault] = []

    def cancel_then_cut_off(status: RunStatus) -> None:
        if not placed:
            run.cancel()
            placed.append(cloud.faults.add(outage))

    assert run.wait(timeout=120, progress=cancel_then_cut_off, poll_seconds=0.01).state is RunState.STOPPED
    assert placed[0].fired == attempts


def test_a_rerun_is_one_run_whoever_asks_and_whatever_answer_is_lost(house: House, faults: Any) -> None:
    run = house.muster.launch(house.spec)
    run.cancel()
    lost = faults.add(CallError(service="states", operation="StartExecution", after_effect=True, count=2))
    with ThreadPoolExecutor(max_workers=2) as pool:
        continuations = list(pool.map(lambda _: Muster(house.stack).run(house.run).rerun().name, range(2)))
    assert (continuations, lost.fired) == ([f"{house.run}-x2"] * 2, 2)
    assert sorted(item.run for item in house.muster.list()) == [house.run, continuations[0]]


@pytest.mark.parametrize("ended", [True, False])
def test_a_rerun_is_the_run_that_the_policy_has_just_started(house: House, ended: bool) -> None:
    run, continued_by = house.muster.launch(house.spec), f"{house.run}-x2"
    run.cancel()
    started = house.muster.launch(
        {**house.spec, "name": continued_by, "resume_from": house.run, "max_runtime_seconds": 60}
    )
    if ended:
        started.cancel()
    assert run.rerun().name == continued_by


def test_a_rerun_takes_no_run_of_somebody_else(house: House) -> None:
    house.muster.launch(house.spec).cancel()
    house.muster.launch({**house.spec, "name": f"{house.run}-x2", "replicas": 3})
    with pytest.raises(RunNameTakenError):
        house.muster.run(house.run).rerun()


def test_a_list_goes_on_beyond_a_page_of_the_service_and_asks_for_no_more_than_it_shows(house: House) -> None:
    machine = Cloud(house.stack, boto3.Session()).stack.state_machine_arn
    stepfunctions = house.workshop.cloud.client("stepfunctions")
    names = [f"{house.run}-{number:03}" for number in range(104)]
    for name in names:
        arn = stepfunctions.start_execution(stateMachineArn=machine, name=name, input="{}")["executionArn"]
        stepfunctions.stop_execution(executionArn=arn)
    running = house.muster.launch(house.spec)
    house.workshop.cloud.calls.reset()
    assert [item.run for item in house.muster.list(limit=2)] == [running.name, names[-1]]
    assert [item.run for item in house.muster.list(RunState.STOPPED, limit=200)] == names[::-1]
    assert [item.run for item in house.muster.list(RunState.RUNNING)] == [running.name]
    assert own_calls(house.workshop.cloud)["ListExecutions"] == 4


def test_names_without_a_run_are_unknown(house: House) -> None:
    for name in (house.run, "not a name"):
        with pytest.raises(UnknownRunError):
            house.muster.run(name).status()
    with pytest.raises(UnknownRunError):
        house.muster.run(house.run).cancel()


def test_a_missing_stack_and_a_foreign_one_are_told_apart(house: House) -> None:
    with pytest.raises(StackNotFoundError, match="no stack named Nowhere in us-east-1"):
        Muster("Nowhere").launch(house.spec)
    with pytest.raises(ForeignStackError, match="JobPrefix"):
        Muster(deploy(house.workshop, prefix="")).launch(house.spec)


def test_profile_and_region_are_chosen_by_name(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MusterError, match=r"No usable AWS credentials: The config profile \(nobody\)"):
        Muster(house.stack, profile="nobody")
    config = tmp_path / "config"
    names = ("aws_access_key_id", "aws_secret_access_key")
    keys = "".join(f"{name} = {os.environ[name.upper()]}\n" for name in names)
    config.write_text(f"[profile far]\nregion = eu-west-1\n{keys}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(UnknownRunError):
        Muster(house.stack, profile="far", region="us-east-1").run("nobody").status()
    with pytest.raises(StackNotFoundError, match="in eu-west-1"):
        Muster("Nowhere", profile="far").run("nobody").status()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    with pytest.raises(StackNotFoundError, match="in eu-west-2"):
        Muster("Nowhere").run("nobody").status()


def test_a_pattern_that_is_none_is_an_error_of_musters(house: House) -> None:
    with pytest.raises(MusterError, match=r"^regex: found '\('; not a valid regular expression"):
        house.muster.run(house.run).logs(regex="(")


def test_what_the_credentials_may_not_do_is_named(house: House) -> None:
    house.muster.launch(house.spec)
    allowed = {"Effect": "Allow", "Action": ["cloudformation:*", "states:*"], "Resource": "*"}
    key = house.workshop.access_key([allowed])
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"])
    with pytest.raises(DeniedError, match="not allowed to call ListObjectsV2"):
        Muster(house.stack, session).run(house.run).status()
