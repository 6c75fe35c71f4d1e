"""A stack is upgraded under a running, a waiting and a queued run, and rolled back: all of them end well.

The newer version is this tree with another replica package, another workflow and fields that this tree does not know,
and it is deployed with other settings. The older one is this tree itself, or the commit that BASE names.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import Muster
from muster.contract.run.record import Record
from muster.contract.run.run_queue import QUEUE_KEY
from muster.local import LocalCloud
from muster.local.faults import QuotaError
from tests.support.deployed import Deployed, Run
from tests.support.versions import Edit, MusterVersion
from tests.support.waiting import wait_until
from tests.support.workshop import fast_settings, turn_to

REARM_SECONDS = 12
CAP = 4
NEWER = "9.9.9"
# One change of each kind that a deployment can bring.
EDITS = [
    # The replica package, and the version that it shows.
    Edit("muster/__init__.py", '__version__ = "0.1.0"', f'__version__ = "{NEWER}"'),
    # A field of a document that is rewritten during a run, one of a part of it, and one of each that is written once.
    *(
        Edit(f"muster/contract/{file}.py", line, f'{line}    added_later: str = "{what}"\n')
        for file, line, what in (
            ("run/record", "    decision: Decision | None = None\n", "record"),
            ("run/attempt", "    artifacts: str | None = None\n", "attempt"),
            ("run/run_queue", "    admitted: bool = False\n", "queue"),
            ("run/plan", "    role_arn: str\n", "plan"),
            ("run/run_document", "    trainer: str | None = None\n", "document"),
        )
    ),
    Edit(
        "muster/contract/spec/spec_fields.py",
        '    rendezvous: Rendezvous = Field(default_factory=Rendezvous, description="',
        '    added_later: int = Field(default=1, description="")\n'
        '    rendezvous: Rendezvous = Field(default_factory=Rendezvous, description="',
    ),
    # A field of what the workflow sends to a function, and of what a function answers.
    Edit(
        "statemachine/run.asl.json",
        '"attempt": "{% $states.input.attempt %}",\n',
        '"attempt": "{% $states.input.attempt %}",\n                "added_later": "workflow",\n',
    ),
    Edit(
        "lambdas/plan.py", '        "queued": False,\n        "run"', '        "queued": False, "added_later": 1, "run"'
    ),
]
# Writes the version of the package that it runs with, waits at its gate, and ends as asked.
PROGRAM = """
import os, pathlib, sys, time
import muster
gates = pathlib.Path(sys.argv[1])
me = "-".join([os.environ["MUSTER_RUN"], os.environ["MUSTER_RANK"], os.environ["MUSTER_ATTEMPT"]])
assert "/muster-package/" in muster.__file__
(gates / f"{me}.version").write_text(muster.__version__)
while not (gates / me).exists():
    time.sleep(0.05)
sys.exit(int((gates / me).read_text() or 0))
"""


def settings(cap: int, **replicas: Any) -> dict[str, Any]:
    return {
        "runs": {"rearm_seconds": REARM_SECONDS, "max_concurrent_replicas": cap},
        "replicas": {"image": "muster-local/python:latest", "instance_type": "ml.c5.xlarge", **replicas},
    }


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    """A cloud of its own: the stack of the other tests must not change."""
    with LocalCloud.start(tmp_path / "cloud", fast_settings(stop_grace_seconds=3.0)) as running:
        yield running


@pytest.fixture
def older(tmp_path: Path) -> MusterVersion:
    base = os.environ.get("BASE")
    folder = tmp_path / "older"
    return MusterVersion.of_revision(folder, base) if base else MusterVersion.of_this_tree(folder)


@pytest.fixture
def newer(tmp_path: Path) -> MusterVersion:
    return MusterVersion.of_this_tree(tmp_path / "newer", EDITS)


def source(folder: Path) -> Path:
    """A folder with the program."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    return folder


def launch(stack: Deployed, name: str, folder: Path, **fields: Any) -> Run:
    """Start a run of the program as a user does, with one rerun for whatever its code does."""
    spec = {
        "name": name,
        "entrypoint": ["python", "program.py", str(stack.gates)],
        "source_dir": str(folder),
        "reruns": {"user-code": {"max_reruns": 3}},
        **fields,
    }
    return stack.run(Muster().launch(spec).name)


def end(stack: Deployed, run: Run, attempt: int, code: int = 0, rank: int = 0) -> None:
    """Let an attempt's program end with an exit code."""
    gate = stack.gates / f"{run.name}-{rank}-{attempt}"
    partial = gate.with_suffix(".partial")
    partial.write_text(str(code))
    partial.rename(gate)


def version(stack: Deployed, run: Run, attempt: int, rank: int = 0) -> str:
    """With which version of the package an attempt runs, once it does."""
    file = stack.gates / f"{run.name}-{rank}-{attempt}.version"
    return wait_until(f"the program of attempt {attempt} of {run.name}", lambda: file.exists() and file.read_text())


def is_queued(run: Run) -> bool:
    body = run.document(QUEUE_KEY)
    queue = json.loads(body)["runs"] if body else []
    return any(queued["run"] == run.name and not queued.get("admitted") for queued in queue)


def attempts(run: Run, rank: int = 0) -> int:
    record = run.record(rank)
    return 0 if record is None else len(record.attempts)


def stored(run: Run, rank: int = 0) -> dict[str, Any]:
    body = run.document(run.layout.record(rank))
    assert body is not None
    return dict(json.loads(body))


@pytest.mark.timeout(900)  # it deploys four times
def test_an_upgrade_and_a_rollback_break_no_run(
    cloud: LocalCloud, older: MusterVersion, newer: MusterVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = older.deploy(cloud.environment(), settings(CAP, tags={"team": "a"}))
    stack = Deployed(cloud, outputs, tmp_path / "gates")
    turn_to(monkeypatch, cloud)
    code = source(tmp_path / "code")
    running = launch(stack, "running", code, replicas=2, deadline_seconds=86_400)
    before = version(stack, running, 1)
    # No quota until the fault is cleared: every launch is refused, and the replica waits for the next one.
    cloud.faults.add(QuotaError(job="*waiting-r0-*", count=None))
    waiting = launch(
        stack,
        "waiting",
        code,
        replicas=1,
        reruns={"quota": {"max_reruns": 100, "delay_seconds": 1, "max_delay_seconds": 2}},
    )
    wait_until("a refused launch", lambda: attempts(waiting) >= 1)
    queued = launch(stack, "queued", code, replicas=2)
    wait_until("the queued run", lambda: is_queued(queued))

    # Other defaults, another package, another workflow, and a limit below what waits in the queue.
    newer.deploy(cloud.environment(), settings(1, tags={"team": "b"}, instance_type="ml.m5.large"))
    refused = attempts(waiting)
    end(stack, running, 1, code=1)
    assert version(stack, running, 2) == before, "a rerun gets the package with which its run began"
    assert stored(running)["added_later"] == "record", "the newer version has rewritten the record"
    wait_until("another refused launch", lambda: attempts(waiting) > refused)
    assert is_queued(queued)
    later = launch(stack, "later", code, replicas=1)
    wait_until("a run of the newer version in the queue", lambda: is_queued(later))
    assert json.loads(later.document(later.layout.plan) or b"")["place"]["added_later"] == "plan"

    older.deploy(cloud.environment(), settings(CAP, tags={"team": "a"}))
    refused = attempts(waiting)
    end(stack, running, 2, code=1)
    assert version(stack, running, 3) == before
    assert stored(running)["added_later"] == "record", "the older version has kept what it does not know"
    assert stored(running)["attempts"][1]["added_later"] == "attempt"
    wait_until("another refused launch", lambda: attempts(waiting) > refused)
    cloud.faults.clear()
    end(stack, waiting, attempts_until_launched(stack, waiting))
    assert waiting.wait()["status"] == "SUCCEEDED", waiting.describe()
    for rank, attempt in ((0, 3), (1, 1)):
        end(stack, running, attempt, rank=rank)
    assert running.wait()["status"] == "SUCCEEDED", running.describe()
    for rank in (0, 1):
        assert version(stack, queued, 1, rank=rank) == before
        end(stack, queued, 1, rank=rank)
    assert queued.wait()["status"] == "SUCCEEDED", queued.describe()
    # Planned by the newer version, run by the older one: with the newer package.
    assert version(stack, later, 1) == NEWER
    end(stack, later, 1, code=1)
    assert version(stack, later, 2) == NEWER
    end(stack, later, 2)
    assert later.wait()["status"] == "SUCCEEDED", later.describe()
    assert [run.result().reruns for run in (running, queued, later)] == [2, 0, 1]
    assert json.loads(queued.document(queued.layout.plan) or b"")["spec"]["tags"]["team"] == "a", "its first plan stays"


def attempts_until_launched(stack: Deployed, run: Run) -> int:
    """The number of the attempt that got its instance."""

    def launched() -> int:
        record: Record | None = run.record()
        number = 0 if record is None else record.current.attempt
        return number if (stack.gates / f"{run.name}-0-{number}.version").exists() else 0

    return wait_until(f"an attempt of {run.name} that runs", launched)
