"""The former entrypoint's flags and variables start a replica of today."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.contract.run.exits import ReplicaExit
from muster.contract.run.run_document import Manifest
from muster.replica.errors import ParametersError
from muster.replica.legacy.all_reduce import OwnRounds
from muster.replica.legacy.arrays import FlatArrays
from muster.replica.rounds.rendezvous import Rendezvous
from tests.support.peers import Run, together
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = "tests.support.jobs.trainers"


def start(base: Path, *flags: str, **variables: str) -> subprocess.Popen[str]:
    base.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "muster.replica.legacy", *flags],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SAGEMAKER_BASE_DIR": str(base), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def flags(folder: Path, kwargs: str, world_size: int = 2) -> list[str]:
    named: dict[str, Any] = {
        "--rendezvous": (folder / "meeting").as_uri(),
        "--world-size": world_size,
        "--trainer-module": PROGRAMS,
        "--trainer-fn": "train",
        "--trainer-kwargs-json": kwargs,
    }
    return [str(word) for pair in named.items() for word in pair]


def test_replicas_meet_and_leave_the_same(tmp_path: Path) -> None:
    document = tmp_path / "kwargs.json"
    document.write_text(json.dumps({"rounds": 3}))
    by_flags = flags(tmp_path, '{"rounds": 3}')
    # The other says the place and the number of replicas by variables alone, as the former executor's jobs did.
    by_variables = flags(tmp_path, document.as_uri())[4:]
    variables = {"RENDEZVOUS_URI": (tmp_path / "meeting").as_uri(), "WORLD_SIZE": "2"}
    started = [
        start(tmp_path / "r0", *by_flags, REPLICA_RANK="0"),
        start(tmp_path / "r1", *by_variables, REPLICA_RANK="1", **variables),
    ]
    for process in started:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == ReplicaExit.DONE, errors
    bodies = [(tmp_path / f"r{rank}/output/data/manifest.json").read_bytes() for rank in range(2)]
    manifests = [Manifest.from_json(body, "manifest.json") for body in bodies]
    assert [manifest.round for manifest in manifests] == [3, 3]
    assert manifests[0].checksum == manifests[1].checksum


def test_a_replica_with_its_own_loop_that_is_killed_starts_again_and_all_end_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(rank: int) -> subprocess.Popen[str]:
        (model := tmp_path / f"model-{rank}").mkdir(exist_ok=True)
        kwargs = json.dumps({"rounds": 6, "pause": 0.05, "model_dir": str(model)})
        arguments = flags(tmp_path, kwargs)
        arguments[arguments.index(PROGRAMS)] = "tests.support.jobs.own_loop"
        return start(tmp_path / f"r{rank}", *arguments, REPLICA_RANK=str(rank))

    commits = tmp_path / "meeting" / "commits"
    started = [launch(rank) for rank in range(2)]
    wait_until("the second round", (commits / "00000002.json").exists)
    started[1].kill()
    started[1].communicate(timeout=240)
    started[1] = launch(1)
    printed = []
    for process in started:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == ReplicaExit.DONE, errors
        printed.append((output, errors))
    assert "event=replayed" in printed[1][1]
    monkeypatch.setenv("REPLICA_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    own_loop = importlib.import_module("tests.support.jobs.own_loop")
    models = [(tmp_path / f"model-{rank}" / "weights.npy").read_bytes() for rank in range(2)]
    assert models[0] == models[1]
    assert models[0].endswith(own_loop.expected(6, 2))


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "leaf"])
def test_tensors_are_averaged_in_place_in_their_own_type(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    run = Run(tmp_path, replicas=2, min_participants=2)

    def tensor(rank: int) -> Any:
        made = torch.arange(6, dtype=getattr(torch, kind, torch.float32)).reshape(2, 3).t() + rank
        return torch.nn.Parameter(made) if kind == "leaf" else made

    def averaged(rendezvous: Rendezvous) -> Any:
        one = tensor(rendezvous.rank)
        arrays = FlatArrays([one])
        arrays.write(OwnRounds(rendezvous).mean(arrays.read()))
        return one

    for found in together(run, averaged):
        assert torch.equal(found.detach().float(), tensor(0).detach().float() + 0.5)
        assert found.dtype == tensor(0).dtype
    with pytest.raises(ParametersError, match=r"values is torch.int64"):
        FlatArrays(torch.arange(3))


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (["--world-size", "two"], {}, ["--rendezvous is ''", "--world-size is 'two'", "--trainer-module is not given"]),
        (["--trainer-kwargs-json", "[1]"], {"WORLD_SIZE": "2", "REPLICA_RANK": "2"}, ["from 0 to 1", "is a list"]),
        (["--wrld-size", "2"], {}, ["unrecognized arguments: --wrld-size 2"]),
    ],
    ids=["missing", "out of range", "unknown flag"],
)
def test_what_is_wrong_is_said_at_once(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], expected: list[str]
) -> None:
    process = start(tmp_path / "base", *arguments, **variables)
    process.communicate(timeout=240)
    assert process.returncode == ReplicaExit.BAD_INPUT
    failure = (tmp_path / "base/output/failure").read_text()
    assert [words for words in expected if words not in failure] == []
