"""The ServerlessExecutor protocol against the deployed stack: a continued run, and a trainer that is killed."""

import importlib
import io
import tarfile

import numpy as np
import pytest

from muster import Muster
from muster.executor import MusterExecutor
from tests.support.cloud_processes import kill, of_job
from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to


@pytest.fixture
def turned(stack: Deployed, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """The stack, and this process turned to it."""
    turn_to(monkeypatch, stack.cloud)
    return stack


def test_a_run_that_is_continued_is_reported_to_its_end(turned: Deployed) -> None:
    executor = MusterExecutor(spec={"continue": {"on": ["failed"], "max": 1}, **EACH_ENDS_ALONE})
    arguments = {"trainer_kwargs": {"rounds": 4, "fail_after": 2}}
    handles = executor.launch_replicas(2, "tests.support.jobs.resuming:train", arguments)
    continued_by = f"{handles[0].metadata['run']}-x2"
    # An executor that has launched nothing knows the handles alone.
    for result in MusterExecutor().collect(handles):
        assert (result["status"], result["exit_code"], result["round"]) == ("succeeded", 0, 4)
        assert continued_by in str(result["training_job_name"])
        assert str(result["result"]).endswith("/model/")
    logged = executor.stream_logs(handles[0], n_lines=10_000)
    assert "the data of round 3 is broken" in logged
    assert "event=done" in logged.splitlines()[-1]
    header, _ = executor.stream_logs(handles[0], n_lines=1).splitlines()
    assert continued_by in header


OWN_LOOP = "tests.support.jobs.own_loop"


def weights_in(stack: Deployed, archive: str) -> bytes:
    """The parameters that a trainer has left in its model.tar.gz."""
    body = stack.s3.get_object(Bucket=stack.bucket, Key=archive.split("/", 3)[3])["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archived:
        member = archived.extractfile("weights.npy")
        assert member is not None
        found: bytes = np.load(io.BytesIO(member.read())).tobytes()
        return found


def test_a_trainer_of_the_former_executor_ends_with_the_same_bytes_although_a_replica_is_killed(
    turned: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is killed counts as the user's error: most often its memory ran out.
    executor = MusterExecutor(spec={"reruns": {"user-code": {"max_reruns": 1, "delay_seconds": 0}}})
    kwargs = {"rounds": 6, "pause": 0.3}
    former = {"rendezvous_uri": "s3://elsewhere/meeting", "trainer_module": OWN_LOOP, "trainer_kwargs": kwargs}
    handles = executor.launch_replicas(3, "ignored", former, timeout=600)
    run = turned.run(str(handles[0].metadata["run"]))
    wait_until("the second round", lambda: run.document(f"{run.layout.commits}00000002.json"))
    assert kill(of_job(turned.cloud, run.job(1))) > 0
    results = executor.collect(handles)
    assert [(result["status"], result["attempts"], result["round"]) for result in results] == [
        ("succeeded", 1, 6),
        ("succeeded", 2, 6),
        ("succeeded", 1, 6),
    ]
    assert [result["training_job_name"] for result in results] == [run.job(0), run.job(1, 2), run.job(2)]
    monkeypatch.setenv("REPLICA_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    expected = importlib.import_module(OWN_LOOP).expected(6, 3)
    assert {weights_in(turned, str(result["result"])) for result in results} == {expected}
    assert all(str(result["result"]).endswith("/output/model.tar.gz") for result in results)
    lines = executor.stream_logs(handles[1], n_lines=10_000).splitlines()
    headers = [line for line in lines if line.startswith("[rank 1] job=")]
    assert [header.split()[2] for header in headers] == [f"job={run.job(1)}", f"job={run.job(1, 2)}"]
    assert all(f" stream={run.job(1, number)}/algo-1-" in header for number, header in enumerate(headers, 1))
    place = f"[trainer] rank 1 of 3 at s3://{turned.bucket}/rendezvous/{run.name}/trainer"
    assert lines.count(place) == 2
    assert any("event=replayed" in line for line in lines)
    assert Muster().run(run.name).status().remarks == ()
