"""Trainers that bring their own loop: what they are called with, and what they find in the environment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.contract.run.run_document import RunDocument
from muster.contract.spec.own_loop import OWN_LOOP, own_loop_kwargs
from muster.contract.spec.policies import OnEarlyFinish
from muster.contract.spec.spec_reader import parse_spec
from muster.replica.entry.trainer import call_trainer, load_trainer
from muster.replica.errors import InputError, TrainerError
from muster.replica.legacy.all_reduce import ObjectStoreAllReduce
from muster.replica.legacy.own_loop import arguments_of, set_environment
from tests.support.contexts import context_of
from tests.support.peers import Run

JOB = "tests.support.jobs.own_loop"
OFFERED: dict[str, object] = dict.fromkeys(("context", "rank", "world_size", "rendezvous_uri", "allreduce"), "given")


@pytest.fixture(autouse=True)
def as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment, the trainer's module and the process's run are afterwards as they were."""
    for name in ("REPLICA_RANK", "WORLD_SIZE", "RENDEZVOUS_URI", "RANK"):
        monkeypatch.setenv(name, "7")
    yield
    ObjectStoreAllReduce._process = None
    sys.modules.pop(JOB, None)


def call(function: str, run: Run, **kwargs: Any) -> str:
    """Call a trainer of the job as a replica's process does."""
    own = own_loop_kwargs(f"{JOB}:{function}", kwargs)
    document = RunDocument(
        run="r",
        plan_digest="",
        replicas=run.replicas,
        trainer=OWN_LOOP,
        kwargs=own,
        rendezvous_uri="",
        min_participants=1,
        grace_seconds=0,
        timeout_seconds=1,
    )
    context = context_of(run)
    how = call_trainer(load_trainer(OWN_LOOP, own), context, document)
    context.rendezvous.returned(how)
    assert context.rendezvous.has_left
    return how


def both(rank: int, *, lr: float) -> object: ...
def by_environment() -> object: ...
def of_muster(ctx: object, *, lr: float) -> object: ...
def all_of_them(rank: int, world_size: int, rendezvous_uri: str, allreduce: object, lr: float = 0.0) -> object: ...
def any_other(**settings: object) -> object: ...


@pytest.mark.parametrize(
    ("function", "kwargs", "expected"),
    [
        (both, {"lr": 0.1}, ([], {"rank": "given", "lr": 0.1})),
        (by_environment, {}, ([], {})),
        (of_muster, {"lr": 0.1}, (["given"], {"lr": 0.1})),
        (all_of_them, {"rank": 3}, ([], {**OFFERED, "rank": 3})),
        # What a function of any arguments does with them is not known: it gets its own alone.
        (any_other, {"lr": 0.1}, ([], {"lr": 0.1})),
    ],
)
def test_a_trainer_gets_its_own_arguments_and_what_its_parameters_name(
    function: Callable[..., object], kwargs: dict[str, object], expected: tuple[list[object], dict[str, object]]
) -> None:
    positional, named = arguments_of("m:train", function, kwargs, OFFERED)
    assert (positional, named) == (expected[0], {key: value for key, value in expected[1].items() if key != "context"})
    function(*positional, **named)


def test_arguments_that_do_not_fit_are_named_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"the trainer m:train does not take these arguments: .*'lr'; by name it can"):
        arguments_of("m:train", both, {"rate": 1}, OFFERED)


def test_a_former_trainer_runs_unchanged_and_reads_its_place_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1, on_early_finish=OnEarlyFinish.CONTINUE)
    assert call("train", run, rounds=3, model_dir=str(tmp_path)) == "its trainer returned"
    printed = capsys.readouterr().out
    assert f"[trainer] rank 0 of 1 at {(tmp_path / 'run' / 'trainer').as_uri()}" in printed
    job = sys.modules[JOB]
    assert (tmp_path / "weights.npy").read_bytes().endswith(job.expected(3, 1))
    # The others do not wait for a replica that has finished.
    assert (tmp_path / "run" / "claims" / "00000" / "000002.json").exists()


def test_errors_and_exits_are_those_of_the_users_function(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    with pytest.raises(TrainerError, match=rf"^{JOB}:fail failed: \S+own_loop\.py:\d+: ValueError: round 4 of rank 0"):
        call("fail", run, rounds=4)
    with pytest.raises(TrainerError, match=f"^{JOB}:leave exited: 3"):
        call("leave", run, code=3)
    with pytest.raises(InputError, match=f"the trainer {JOB}:missing cannot be imported"):
        call("missing", run)
    # It need not make any call.
    assert call("leave", run, code=0) == "its trainer called sys.exit(0)"


def test_the_variables_are_those_of_the_former_entrypoint_and_none_of_torchs(tmp_path: Path) -> None:
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "PATH": "/bin"}
    set_environment(variables, context_of(Run(tmp_path), 2), "s3://bucket/rendezvous/r/trainer")
    assert variables == {
        "PATH": "/bin",
        "REPLICA_RANK": "2",
        "WORLD_SIZE": "3",
        "RENDEZVOUS_URI": "s3://bucket/rendezvous/r/trainer",
    }


def test_a_spec_can_name_such_a_trainer() -> None:
    spec = parse_spec({"replicas": 2, "trainer": OWN_LOOP, "kwargs": own_loop_kwargs("m:train", {"rounds": 3})})
    assert spec.kwargs == {"trainer": "m:train", "kwargs": {"rounds": 3}}
