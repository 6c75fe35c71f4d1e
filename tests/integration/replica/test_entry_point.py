"""`python -m muster.replica` as SageMaker sees it: exit codes, the failure file, the manifest, SIGTERM and SIGKILL."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from muster.contract.exits import ReplicaExit
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.wire import rendezvous_keys
from tests.support.forked_replicas import ForkedRun, wait_for_line
from tests.support.peers import Run
from tests.support.source_patch import ROOT
from tests.support.waiting import wait_until

PROGRAMS = "tests.support.jobs.trainers"
TRAIN = f"{PROGRAMS}:train"
PLACE = "tests/support/jobs/trainers.py:"


def test_a_finished_replica_leaves_the_runs_model_and_a_manifest(containers: ForkedRun) -> None:
    containers.write_document(TRAIN, kwargs={"rounds": 3})
    code, out, _ = containers.ended(containers.start())
    assert code == ReplicaExit.DONE
    lines = out.splitlines()
    assert [line for line in lines if "loss" in line] == ["round=1 loss=1", "round=2 loss=0.5", "round=3 loss=0.333333"]
    measured = [line for line in lines if line.startswith("utilisation=")]
    rates = [line for line in lines if line.startswith("samples_per_second=")]
    # The first round began with the launch: it says nothing about the pace.
    updates = [line for line in lines if line.startswith("update_norm=")]
    assert (len(measured), len(rates), len(updates), len(lines)) == (3, 2, 3, 11)
    assert "run_samples_per_second=" in rates[0]
    manifest = containers.manifest()
    assert manifest.checkpoint_s3_bucket == (containers.meeting_place / "output" / "model").as_uri()
    assert manifest.round == 3
    last = float(measured[-1].partition("=")[2])
    assert manifest.metrics == {
        "round": 3.0,
        "loss": pytest.approx(1 / 3),
        "utilisation": pytest.approx(last, rel=1e-4),
        "update_norm": pytest.approx(float(updates[-1].partition("=")[2]), rel=1e-4),
    }
    weights = containers.weights()
    assert manifest.checksum == hashlib.sha256(weights.tobytes()).hexdigest()
    assert weights.tobytes() == Run(containers.root, replicas=1, rounds=3).replayed_by_hand()
    assert not (containers.base() / "output" / "failure").exists()


@pytest.mark.parametrize(("rule", "last"), [(OnEarlyFinish.CONTINUE, 5), (OnEarlyFinish.STOP, 3)])
def test_a_replica_with_less_data_ends_alone_and_the_others_as_the_run_says(
    containers: ForkedRun, rule: OnEarlyFinish, last: int
) -> None:
    containers.write_document(
        f"{PROGRAMS}:train_unequally", replicas=2, kwargs={"rounds": [5, 2]}, on_early_finish=rule, timeout_seconds=30.0
    )
    longer, shorter = [containers.ended(process) for process in [containers.start(rank) for rank in range(2)]]
    assert (shorter[0], longer[0]) == (ReplicaExit.DONE, ReplicaExit.DONE), longer[2]
    assert [containers.manifest(rank).round for rank in range(2)] == [last, 2]
    why = "its trainer called sys.exit(0)"
    assert [containers.manifest(rank).ended for rank in range(2)] == ["", why]
    assert f"event=finished rank=1 last_round=2 on_early_finish={rule} needed=1 reason={why!r}" in longer[2]
    ended_by_rule = f"(on_early_finish: stop): replica 1 finished in round 2: {why}." in longer[2]
    asked = f"asked_to_return={1 if rule is OnEarlyFinish.STOP else 0}"
    assert ended_by_rule is (rule is OnEarlyFinish.STOP)
    assert longer[1].splitlines()[-1] == asked
    alone = Run(containers.root, replicas=2, rounds=last).replayed_by_hand(lambda r: [0, 1] if r < 3 else [0])
    assert containers.weights().tobytes() == alone
    # The one that finished early leaves the model to the other.
    written = sorted(path.name for path in (containers.meeting_place / "output").glob("*.json"))
    assert written == [f"model-{last:08d}.json"]


def test_what_a_rerun_loads_is_read_while_its_trainer_is_imported(containers: ForkedRun) -> None:
    containers.write_document(TRAIN, kwargs={"rounds": 3}, snapshot_rounds=2)
    assert containers.ended(containers.start())[0] == ReplicaExit.DONE
    gate = containers.root / "gate"
    containers.write_document("tests.support.jobs.slow_import:train", kwargs={"rounds": 4}, snapshot_rounds=2)
    again = containers.start(attempt=2, MUSTER_TEST_GATE=str(gate))
    wait_for_line(again, "event=prefetched")
    assert len(list((containers.meeting_place / "claims" / "00000").iterdir())) == 1, "it claims no rank before that"
    # What it has is all that it needs.
    for folder in (rendezvous_keys.SNAPSHOTS, rendezvous_keys.REDUCED):
        shutil.rmtree(containers.meeting_place / folder)
    gate.touch()
    code, _, error = containers.ended(again)
    assert code == ReplicaExit.DONE, error
    assert containers.weights().tobytes() == Run(containers.root, replicas=1, rounds=4).replayed_by_hand()


def test_a_prefetch_that_hangs_keeps_no_process_that_has_failed(containers: ForkedRun) -> None:
    containers.write_document(TRAIN, kwargs={"rounds": 3}, snapshot_rounds=2)
    assert containers.ended(containers.start())[0] == ReplicaExit.DONE
    shard = containers.meeting_place / rendezvous_keys.snapshot(2, "shared", 0)
    shard.unlink()
    os.mkfifo(shard)  # reading it ends when something is written to it
    gate = containers.root / "gate"
    containers.write_document("tests.support.jobs.slow_import:absent", snapshot_rounds=2)
    failing = containers.start(attempt=2, MUSTER_TEST_GATE=str(gate))
    wait_for_line(failing, "event=prefetch mib=0")
    gate.touch()
    assert containers.ended(failing)[0] == ReplicaExit.BAD_INPUT


def test_everything_that_is_missing_is_said_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muster.replica"],
        env={"MUSTER_RANK": "one", "MUSTER_ATTEMPT": "0", "SAGEMAKER_BASE_DIR": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ReplicaExit.BAD_INPUT
    assert "Traceback" not in done.stderr
    words = ("MUSTER_DOCUMENT is not set", "MUSTER_RUN is not set", "MUSTER_RANK is 'one'", "MUSTER_ATTEMPT is '0'")
    assert [said for said in (*words, "/nowhere is not a directory") if said not in done.stderr] == []


@dataclass(frozen=True)
class Ending:
    """How a replica ends whose document has these `fields`, or is these bytes, and the words of its failure."""

    code: ReplicaExit
    words: Sequence[str]
    fields: Mapping[str, Any] = field(default_factory=dict)
    trainer: str | None = TRAIN
    document: bytes | None = None
    has_traceback: bool = False


def bad_input(*words: str, **given: Any) -> Ending:
    return Ending(ReplicaExit.BAD_INPUT, ["[bad-input] ", *words], **given)


def user_code(function: str, *words: str, has_traceback: bool = False) -> Ending:
    place = f"{PROGRAMS}:{function}"
    return Ending(ReplicaExit.USER_CODE, [place, *words], trainer=place, has_traceback=has_traceback)


def no_memory(kind: str, *words: str) -> Ending:
    said = ["[out-of-memory] Choose an instance_type", f"{PROGRAMS}:exhaust failed: {PLACE}", *words]
    return Ending(ReplicaExit.OUT_OF_MEMORY, said, {"kwargs": {"kind": kind}}, f"{PROGRAMS}:exhaust", None, True)


ENDINGS = {
    "a document of another run": bad_input(
        "the run other, but MUSTER_RUN is test",
        "MUSTER_RANK is 0, but the document is that of rank 2",
        "names no trainer",
        "rendezvous_uri is 'gs://x/'",
        trainer=None,
        fields={"run": "other", "rendezvous_uri": "gs://x/", "sweep_rank": 2},
    ),
    "a damaged document": bad_input("cannot be read", document=b"{"),
    "a document of a later form": bad_input("it has form 2", document=b'{"version":2}'),
    "a module that is not there": bad_input(
        "the trainer nowhere.to_be:found cannot be imported: ModuleNotFoundError", trainer="nowhere.to_be:found"
    ),
    "a function that is not there": bad_input("has no function absent", trainer=f"{PROGRAMS}:absent"),
    "other arguments": bad_input("missing a required argument: 'rounds'", fields={"kwargs": {"round": 3}}),
    "an error": user_code(
        "fail", f"failed: {PLACE}", ": ValueError: the learning rate is negative", has_traceback=True
    ),
    "an exit": user_code("exit_with_three", "exited: 3"),
    "no DiLoCo": user_code("do_nothing", "returned without creating a DiLoCo"),
    "no memory": no_memory("MemoryError", ": MemoryError: 3 TiB"),
    "no memory on a GPU": no_memory("torch", ": torch.OutOfMemoryError: 3 TiB"),
    "no memory, in another error": no_memory("wrapped", ": RuntimeError: in the forward pass"),
    "no quorum": Ending(
        ReplicaExit.RENDEZVOUS,
        ["[rendezvous] Timed out after 0.2 s", "1 of at least 2 participants; missing: rank 1."],
        {"replicas": 2, "timeout_seconds": 0.2, "kwargs": {"rounds": 1}},
    ),
}


def test_how_a_replica_fails(containers: ForkedRun) -> None:
    found = {}
    for attempt, (name, expected) in enumerate(ENDINGS.items(), start=1):
        containers.write_document(expected.trainer, **expected.fields)
        if expected.document is not None:
            (containers.root / "document.json").write_bytes(expected.document)
        code, _, error = containers.ended(containers.start(attempt=attempt))
        failure = containers.failure(attempt=attempt)
        missing = [word for word in expected.words if word not in failure]
        if (code, missing, "Traceback" in error) != (expected.code, [], expected.has_traceback):
            found[name] = (code, failure, missing)
    assert found == {}


def test_a_missing_document_is_named(containers: ForkedRun) -> None:
    assert containers.ended(containers.start())[0] == ReplicaExit.BAD_INPUT
    assert f"{(containers.root / 'document.json').as_uri()} does not exist" in containers.failure()


def test_the_trainer_gets_its_place_in_the_run(containers: ForkedRun) -> None:
    containers.write_document(f"{PROGRAMS}:say_where", replicas=2)
    code, out, _ = containers.ended(containers.start(rank=1, attempt=4))
    assert (code, out) == (ReplicaExit.DONE, "1 2 4 1 test\n")
    for folder in ("checkpoints", "output/data", "model"):
        assert (containers.base(1, 4) / folder / "touched").exists()


def test_a_stopped_replica_leaves_the_model_to_its_rerun(containers: ForkedRun) -> None:
    stopped = f"{PROGRAMS}:wait_to_be_stopped"
    containers.write_document(stopped, kwargs={"rounds": 2}, metrics={"tensorboard": True})
    process = containers.start()
    assert "waiting=1\n" in process.stdout
    assert containers.stopped(process)[0] == ReplicaExit.STOPPED
    assert not (containers.meeting_place / "output").exists()
    assert not (containers.base() / "output" / "data" / "manifest.json").exists()
    [events] = (containers.base() / "checkpoints" / "tensorboard").iterdir()
    assert b"waiting" in events.read_bytes()


def test_sigterm_ends_a_wait_for_others(containers: ForkedRun) -> None:
    containers.write_document(f"{PROGRAMS}:swallow_nothing_but_stop", replicas=2)
    process = containers.start()
    wait_until("the contribution of rank 0", (containers.meeting_place / rendezvous_keys.contribution(1, 0, 1)).exists)
    code, out, _ = containers.stopped(process)
    assert (code, out) == (ReplicaExit.STOPPED, "stopped in a wait\n")
    assert containers.failure() == "[saved] The replica was asked to stop (SIGTERM)."


def test_a_superseded_attempt_says_that_it_is_fenced(containers: ForkedRun) -> None:
    containers.write_document(TRAIN, kwargs={"rounds": 1})
    assert containers.ended(containers.start(attempt=2))[0] == ReplicaExit.DONE
    assert containers.ended(containers.start(attempt=1))[0] == ReplicaExit.FENCED
    assert containers.failure().startswith("[fenced] Attempt 1, incarnation 1 of rank 0 is superseded")


def test_starting_loads_no_cloud_sdk_and_no_data_science_stack() -> None:
    heavy = ["boto3", "botocore", "pandas", "sklearn", "scipy", "torch", "obstore", "transformers", "lightning", "jax"]
    code = f"import sys, muster.replica.entry.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_a_replica_of_a_sweep_trains_by_itself(containers: ForkedRun) -> None:
    containers.write_document(TRAIN, kwargs={"rounds": 3}, sweep_rank=2)
    other, own = containers.start(rank=1), containers.start(rank=2)
    code, _, error = containers.ended(own)
    assert code == ReplicaExit.DONE, error
    # In its own rounds it is rank 0 of one.
    commit = json.loads((containers.meeting_place / rendezvous_keys.commit(3)).read_bytes())
    assert [member["rank"] for member in commit["members"]] == [0]
    assert containers.ended(other)[0] == ReplicaExit.BAD_INPUT
    assert "MUSTER_RANK is 1, but the document is that of rank 2" in containers.failure(1)
