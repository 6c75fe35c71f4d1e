"""The former entrypoint's flags and variables start a replica of today."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from muster.contract.run.exits import ReplicaExit
from tests.support.command_server import Command
from tests.support.forked_replicas import ForkedRun
from tests.support.waiting import wait_until

PROGRAMS = "tests.support.jobs.trainers"


def start(containers: ForkedRun, rank: int, *flags: str, **variables: str) -> Command:
    base = containers.base(rank)
    base.mkdir(exist_ok=True)
    return containers.run(["legacy", *flags], {"SAGEMAKER_BASE_DIR": str(base), **variables})


def flags(containers: ForkedRun, kwargs: str, module: str = PROGRAMS) -> list[str]:
    place = ["--rendezvous", containers.meeting_place.as_uri(), "--world-size", "2"]
    return [*place, "--trainer-module", module, "--trainer-fn", "train", "--trainer-kwargs-json", kwargs]


def test_replicas_meet_and_leave_the_same(containers: ForkedRun) -> None:
    document = containers.root / "kwargs.json"
    document.write_text(json.dumps({"rounds": 3}))
    by_flags = flags(containers, '{"rounds": 3}')
    # The other says the place and the number of replicas by variables alone, as the former executor's jobs did.
    by_variables = flags(containers, document.as_uri())[4:]
    variables = {"RENDEZVOUS_URI": containers.meeting_place.as_uri(), "WORLD_SIZE": "2"}
    started = [
        start(containers, 0, *by_flags, REPLICA_RANK="0"),
        start(containers, 1, *by_variables, REPLICA_RANK="1", **variables),
    ]
    for process in started:
        code, _, errors = containers.ended(process)
        assert code == ReplicaExit.DONE, errors
    manifests = [containers.manifest(rank) for rank in range(2)]
    assert [manifest.round for manifest in manifests] == [3, 3]
    assert manifests[0].checksum == manifests[1].checksum


def test_a_replica_with_its_own_loop_that_is_killed_starts_again_and_all_end_with_the_same_bytes(
    containers: ForkedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(rank: int) -> Path:
        (folder := containers.root / f"model-{rank}").mkdir(exist_ok=True)
        return folder

    def launch(rank: int) -> Command:
        kwargs = json.dumps({"rounds": 6, "pause": 0.05, "model_dir": str(model(rank))})
        return start(
            containers, rank, *flags(containers, kwargs, "tests.support.jobs.own_loop"), REPLICA_RANK=str(rank)
        )

    started = [launch(rank) for rank in range(2)]
    wait_until("the second round", (containers.meeting_place / "commits" / "00000002.json").exists)
    containers.kill(started[1])
    errors = []
    for process in (started[0], launch(1)):
        code, _, error = containers.ended(process)
        assert code == ReplicaExit.DONE, error
        errors.append(error)
    assert "event=replayed" in errors[1]
    monkeypatch.setenv("REPLICA_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    own_loop = importlib.import_module("tests.support.jobs.own_loop")
    models = [(model(rank) / "weights.npy").read_bytes() for rank in range(2)]
    assert models[0] == models[1]
    assert models[0].endswith(own_loop.expected(6, 2))


def test_what_is_wrong_is_said_at_once(containers: ForkedRun) -> None:
    cases: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
        "missing": (
            ["--world-size", "two"],
            {},
            ["--rendezvous is ''", "--world-size is 'two'", "--trainer-module is not given"],
        ),
        "out of range": (
            ["--trainer-kwargs-json", "[1]"],
            {"WORLD_SIZE": "2", "REPLICA_RANK": "2"},
            ["from 0 to 1", "is a list"],
        ),
        "unknown flag": (["--wrld-size", "2"], {}, ["unrecognized arguments: --wrld-size 2"]),
    }
    for rank, (name, (arguments, variables, expected)) in enumerate(cases.items()):
        assert containers.ended(start(containers, rank, *arguments, **variables))[0] == ReplicaExit.BAD_INPUT, name
        failure = containers.failure(rank)
        assert [words for words in expected if words not in failure] == [], name
