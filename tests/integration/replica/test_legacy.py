"""The former entrypoint's flags and variables start a replica of today."""

import json

from muster.contract.exits import ReplicaExit
from tests.support.command_server import Command
from tests.support.forked_replicas import ForkedRun

PROGRAMS = "tests.support.jobs.trainers"


def start(containers: ForkedRun, rank: int, *flags: str, **variables: str) -> Command:
    base = containers.base(rank)
    base.mkdir(exist_ok=True)
    return containers.run(
        ["muster.options.executor.replica.entrypoint", *flags], {"SAGEMAKER_BASE_DIR": str(base), **variables}
    )


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
