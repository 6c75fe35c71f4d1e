"""`python -m muster.replica` as SageMaker sees it: exit codes, the failure file, the manifest, SIGTERM and SIGKILL."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from muster.contract.run.exits import ReplicaExit
from muster.contract.run.run_document import Manifest, RunDocument
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.wire import keys
from tests.support.peers import Run
from tests.support.waiting import wait_until

PROGRAMS = "tests.support.jobs.trainers"


def place_of(function: str, code: str) -> str:
    """The file and the line with `code` in it in a trainer, as a failure names them."""
    source = ROOT / "tests" / "support" / "jobs" / "trainers.py"
    lines = source.read_text().splitlines()
    begin = next(number for number, text in enumerate(lines) if text.startswith(f"def {function}("))
    line = next(number for number, text in enumerate(lines, 1) if number > begin and code in text)
    return f"{source.relative_to(ROOT)}:{line}"


ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Containers:
    """Replica processes over one directory."""

    root: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def meeting_place(self) -> Path:
        return self.root / "rendezvous"

    def write_document(self, function: str = "train", **changes: Any) -> None:
        fields: dict[str, Any] = {
            "run": "test",
            "plan_digest": "0",
            "replicas": 1,
            "trainer": f"{PROGRAMS}:{function}",
            "kwargs": {"rounds": 3} if function == "train" else {},
            "rendezvous_uri": f"{self.meeting_place.as_uri()}/",
            "min_participants": 1,
            "grace_seconds": 0.2,
            "timeout_seconds": 120.0,
            **changes,
        }
        (self.root / "document.json").write_bytes(RunDocument(**fields).to_json())

    def base(self, rank: int, attempt: int = 1) -> Path:
        return self.root / f"r{rank}a{attempt}"

    def start(self, rank: int = 0, attempt: int = 1, **variables: str) -> subprocess.Popen[str]:
        self.base(rank, attempt).mkdir(exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "MUSTER_DOCUMENT": (self.root / "document.json").as_uri(),
            "MUSTER_RUN": "test",
            "MUSTER_RANK": str(rank),
            "MUSTER_ATTEMPT": str(attempt),
            "SAGEMAKER_BASE_DIR": str(self.base(rank, attempt)),
            **variables,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "muster.replica"],
            env={name: value for name, value in environment.items() if value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def weights(self) -> NDArray[np.float32]:
        """Those of the run's model."""
        return load_file(self.meeting_place / "output" / "model" / "model.safetensors")["weights"]

    def failure(self, rank: int = 0, attempt: int = 1) -> str:
        return (self.base(rank, attempt) / "output" / "failure").read_text()

    def manifest(self, rank: int = 0, attempt: int = 1) -> Manifest:
        path = self.base(rank, attempt) / "output" / "data" / "manifest.json"
        return Manifest.from_json(path.read_bytes(), str(path))


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    containers = Containers(tmp_path)
    yield containers
    for process in containers.processes:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[ReplicaExit, str, str]:
    out, error = process.communicate(timeout=240)
    return ReplicaExit(process.returncode), out, error


def test_a_finished_replica_leaves_the_runs_model_and_a_manifest(containers: Containers) -> None:
    containers.write_document()
    code, out, _ = ended(containers.start())
    assert code is ReplicaExit.DONE
    lines = out.splitlines()
    assert [line for line in lines if "loss" in line] == ["round=1 loss=1", "round=2 loss=0.5", "round=3 loss=0.333333"]
    measured = [line for line in lines if line.startswith("utilisation=")]
    rates = [line for line in lines if line.startswith("samples_per_second=")]
    # The first round began with the launch: it says nothing about the pace.
    assert (len(measured), len(rates), len(lines)) == (3, 2, 8)
    assert "run_samples_per_second=" in rates[0]
    manifest = containers.manifest()
    assert manifest.checkpoint_s3_bucket == (containers.meeting_place / "output" / "model").as_uri()
    assert manifest.round == 3
    last = float(measured[-1].partition("=")[2])
    assert manifest.metrics == {
        "round": 3.0,
        "loss": pytest.approx(1 / 3),
        "utilisation": pytest.approx(last, rel=1e-4),
    }
    weights = containers.weights()
    assert manifest.checksum == hashlib.sha256(weights.tobytes()).hexdigest()
    assert weights.tobytes() == Run(containers.root, replicas=1, rounds=3).replayed_by_hand()
    assert not (containers.base(0) / "output" / "failure").exists()


@pytest.mark.parametrize(("rule", "last"), [(OnEarlyFinish.CONTINUE, 5), (OnEarlyFinish.STOP, 3)])
def test_a_replica_with_less_data_ends_alone_and_the_others_as_the_run_says(
    containers: Containers, rule: OnEarlyFinish, last: int
) -> None:
    containers.write_document(
        "train_unequally",
        replicas=2,
        min_participants=2,
        kwargs={"rounds": [5, 2]},
        on_early_finish=rule,
        timeout_seconds=30.0,
    )
    longer, shorter = [ended(process) for process in [containers.start(rank) for rank in range(2)]]
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


def test_a_replica_that_is_killed_comes_back_as_another_process_and_all_hold_the_same_bits(
    containers: Containers,
) -> None:
    containers.write_document(replicas=3, min_participants=3, kwargs={"rounds": 40})
    first = [containers.start(rank) for rank in range(3)]
    wait_until("the commit of round 5", (containers.meeting_place / keys.commit(5)).exists)
    first[1].kill()
    first[1].wait()
    again = containers.start(1)
    for process in (first[0], again, first[2]):
        code, _, error = ended(process)
        assert code is ReplicaExit.DONE, error
    claims = sorted((containers.meeting_place / "claims" / "00001").iterdir())
    said = [json.loads(claim.read_text()) for claim in claims]
    # It claims its rank before it loads the state, and again when it can contribute.
    assert [(claim["incarnation"], claim.get("loads", False)) for claim in said] == [(1, False), (2, True), (2, False)]
    checksums = {containers.manifest(rank).checksum for rank in range(3)}
    assert checksums == {hashlib.sha256(Run(containers.root, rounds=40).replayed_by_hand()).hexdigest()}


def lines_until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    assert any(word in line for line in process.stderr), f"it has ended without {word}"


def test_what_a_rerun_loads_is_read_while_its_trainer_is_imported(containers: Containers) -> None:
    containers.write_document(kwargs={"rounds": 3}, snapshot_rounds=2)
    assert ended(containers.start())[0] is ReplicaExit.DONE
    gate = containers.root / "gate"
    slow = "tests.support.jobs.slow_import:train"
    containers.write_document(trainer=slow, kwargs={"rounds": 4}, snapshot_rounds=2)
    again = containers.start(attempt=2, MUSTER_TEST_GATE=str(gate))
    lines_until(again, "event=prefetched")
    assert len(list((containers.meeting_place / "claims" / "00000").iterdir())) == 1, "it claims no rank before that"
    # What it has is all that it needs.
    for folder in (keys.SNAPSHOTS, keys.REDUCED):
        shutil.rmtree(containers.meeting_place / folder)
    gate.touch()
    code, _, error = ended(again)
    assert code is ReplicaExit.DONE, error
    assert containers.weights().tobytes() == Run(containers.root, replicas=1, rounds=4).replayed_by_hand()


def test_a_prefetch_that_hangs_keeps_no_process_that_has_failed(containers: Containers) -> None:
    containers.write_document(kwargs={"rounds": 3}, snapshot_rounds=2)
    assert ended(containers.start())[0] is ReplicaExit.DONE
    shard = containers.meeting_place / keys.snapshot(2, "shared", 0)
    shard.unlink()
    os.mkfifo(shard)  # reading it ends when something is written to it
    containers.write_document(trainer=f"{PROGRAMS}:absent", kwargs={}, snapshot_rounds=2)
    code, _, _ = ended(containers.start(attempt=2))
    assert code is ReplicaExit.BAD_INPUT


def test_everything_that_is_missing_is_said_at_once(containers: Containers) -> None:
    process = containers.start(MUSTER_DOCUMENT="", MUSTER_RUN="", MUSTER_RANK="one", MUSTER_ATTEMPT="0")
    code, _, error = ended(process)
    assert code is ReplicaExit.BAD_INPUT
    assert containers.failure() == (
        "[bad-input] MUSTER_DOCUMENT is not set (the URI of the run document); MUSTER_RUN is not set (the run's name); "
        "MUSTER_RANK is 'one', not a whole number from 0 to 9999; "
        "MUSTER_ATTEMPT is '0', not a whole number from 1 to 999000"
    )
    assert "Traceback" not in error


def test_a_tree_that_is_not_there_is_named_and_not_made(containers: Containers) -> None:
    nowhere = containers.root / "nowhere"
    code, _, error = ended(containers.start(SAGEMAKER_BASE_DIR=str(nowhere)))
    assert code is ReplicaExit.BAD_INPUT
    assert f"{nowhere} is not a directory (SAGEMAKER_BASE_DIR names the root of SageMaker's folders)" in error
    assert not nowhere.exists()


def test_a_document_of_another_run_is_refused_with_all_that_disagrees(containers: Containers) -> None:
    containers.write_document(run="other", trainer=None, rendezvous_uri="gs://x/")
    code, _, _ = ended(containers.start(rank=3))
    assert code is ReplicaExit.BAD_INPUT
    assert containers.failure(3) == (
        "[bad-input] the document belongs to the run other, but MUSTER_RUN is test; MUSTER_RANK is 3, but the run has "
        "1 replicas (ranks start at 0); the document names no trainer (package.module:function); "
        "the document's rendezvous_uri is 'gs://x/', not an s3:// or file:// URI"
    )


@pytest.mark.parametrize(
    ("document", "reason"),
    [(None, "does not exist"), (b"{", "cannot be read"), (b'{"version":2}', "cannot be read: it has form 2")],
)
def test_a_missing_or_damaged_document_is_named(containers: Containers, document: bytes | None, reason: str) -> None:
    if document is not None:
        (containers.root / "document.json").write_bytes(document)
    code, _, _ = ended(containers.start())
    assert code is ReplicaExit.BAD_INPUT
    assert containers.failure().startswith(f"[bad-input] {(containers.root / 'document.json').as_uri()} {reason}")


@pytest.mark.parametrize(
    ("trainer", "kwargs", "reason"),
    [
        ("nowhere.to_be:found", {}, "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        (f"{PROGRAMS}:absent", {}, f"cannot be imported: {PROGRAMS} has no function absent"),
        (f"{PROGRAMS}:train", {"round": 3}, "does not take these arguments: missing a required argument: 'rounds'"),
    ],
)
def test_a_trainer_that_cannot_be_called_is_bad_input(
    containers: Containers, trainer: str, kwargs: dict[str, int], reason: str
) -> None:
    containers.write_document(trainer=trainer, kwargs=kwargs)
    code, _, _ = ended(containers.start())
    assert code is ReplicaExit.BAD_INPUT
    assert containers.failure() == f"[bad-input] the trainer {trainer} {reason}"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("fail", f"failed: {place_of('fail', 'raise')}: ValueError: the learning rate is negative"),
        ("exit_with_three", "exited: 3"),
        ("do_nothing", "returned without creating a DiLoCo(context.rendezvous, ...)."),
    ],
)
def test_a_trainer_that_fails_is_user_code(containers: Containers, function: str, reason: str) -> None:
    containers.write_document(function)
    code, _, error = ended(containers.start())
    assert code is ReplicaExit.USER_CODE
    assert containers.failure() == f"{PROGRAMS}:{function} {reason}"
    assert ("Traceback" in error) == (function == "fail")


def test_the_trainer_gets_its_place_in_the_run(containers: Containers) -> None:
    containers.write_document("say_where", replicas=2)
    code, out, _ = ended(containers.start(rank=1, attempt=4))
    assert (code, out) == (ReplicaExit.DONE, "1 2 4 1 test\n")
    base = containers.base(1, 4)
    for folder in ("checkpoints", "output/data", "model"):
        assert (base / folder / "touched").exists()


def test_a_stopped_replica_leaves_the_model_to_its_rerun(containers: Containers) -> None:
    containers.write_document("wait_to_be_stopped", kwargs={"rounds": 2}, metrics={"tensorboard": True})
    process = containers.start()
    assert process.stdout is not None
    assert "waiting=1\n" in process.stdout
    process.send_signal(signal.SIGTERM)
    code, _, _ = ended(process)
    assert code is ReplicaExit.STOPPED
    assert not (containers.meeting_place / "output").exists()
    assert not (containers.base(0) / "output" / "data" / "manifest.json").exists()
    [events] = (containers.base(0) / "checkpoints" / "tensorboard").iterdir()
    assert b"waiting" in events.read_bytes()


def test_sigterm_ends_a_wait_for_others(containers: Containers) -> None:
    containers.write_document("swallow_nothing_but_stop", replicas=2, min_participants=2)
    process = containers.start()
    wait_until("the contribution of rank 0", (containers.meeting_place / keys.contribution(1, 0, 1)).exists)
    process.send_signal(signal.SIGTERM)
    code, out, _ = ended(process)
    assert (code, out) == (ReplicaExit.STOPPED, "stopped in a wait\n")
    assert containers.failure() == "[saved] The replica was asked to stop (SIGTERM)."


def test_no_quorum_in_time_is_a_failed_rendezvous(containers: Containers) -> None:
    containers.write_document(replicas=2, min_participants=2, timeout_seconds=0.2)
    code, _, _ = ended(containers.start())
    assert code is ReplicaExit.RENDEZVOUS
    assert containers.failure() == (
        "[rendezvous] Timed out after 0.2 s (rendezvous.timeout_seconds): round 1 has 1 of at least 2 participants; "
        "missing: rank 1."
    )


def test_a_superseded_attempt_says_that_it_is_fenced(containers: Containers) -> None:
    containers.write_document()
    assert ended(containers.start(attempt=2))[0] is ReplicaExit.DONE
    code, _, _ = ended(containers.start(attempt=1))
    assert code is ReplicaExit.FENCED
    assert containers.failure() == (
        "[fenced] Attempt 1, incarnation 1 of rank 0 is superseded: a newer process has claimed the rank."
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("MemoryError", f"{place_of('exhaust', 'raise (of_torch')}: MemoryError: 3 TiB"),
        ("torch", f"{place_of('exhaust', 'raise (of_torch')}: torch.OutOfMemoryError: 3 TiB"),
        ("wrapped", f"{place_of('exhaust', 'raise RuntimeError')}: RuntimeError: in the forward pass"),
    ],
)
def test_a_trainer_without_memory_says_so_and_what_helps(containers: Containers, kind: str, said: str) -> None:
    containers.write_document("exhaust", kwargs={"kind": kind})
    code, _, error = ended(containers.start())
    assert code is ReplicaExit.OUT_OF_MEMORY
    assert containers.failure() == (
        "[out-of-memory] Choose an instance_type with more memory, or train on smaller batches. "
        f"{PROGRAMS}:exhaust failed: {said}"
    )
    assert "Traceback" in error


def test_starting_loads_no_cloud_sdk_and_no_data_science_stack() -> None:
    heavy = ["boto3", "botocore", "pandas", "sklearn", "scipy", "torch", "obstore", "transformers", "lightning", "jax"]
    code = f"import sys, muster.replica.entry.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_a_replica_of_a_sweep_trains_by_itself(containers: Containers) -> None:
    containers.write_document(sweep_rank=2)
    other = containers.start(rank=1)
    outcome = containers.start(rank=2)
    assert outcome.wait(60) == ReplicaExit.DONE, outcome.communicate()[1]
    # In its own rounds it is rank 0 of one.
    commit = json.loads((containers.meeting_place / keys.commit(3)).read_bytes())
    assert [member["rank"] for member in commit["members"]] == [0]
    assert other.wait(60) == ReplicaExit.BAD_INPUT
    assert "MUSTER_RANK is 1, but the document is that of rank 2" in containers.failure(1)
