"""A handful of runs on the deployed stack, started at once and waited for together, with faults in their way.

Together they take the ways of the workflow, use the rights of the roles and set off the triggers that ledger.py lists.
What Muster decides is tested below; here it is shown that the parts are connected as they are deployed.
"""

import itertools
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from muster.contract.run.run_events import RUN_REQUESTED, SCALE_REQUESTED
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.control.aws.clients import TRIES
from muster.local.faults import CallError, CapacityError, LostInstance, SlowStart
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed, Run
from tests.support.jobs.endings import ENDINGS
from tests.support.waiting import wait_until
from tests.workflow.listeners import Listener, People

BROKEN_SPEC = '{"replicas": "4", "trainer": "no colon"}'
CAP = 8
"""The replicas that may train at once while the first two runs begin, which have as many."""
_CAPPED = ("Plan", "Admit", "Settle", "Stop", "Sweep")
_VARIABLE = "MUSTER_MAX_CONCURRENT_REPLICAS"
_DENIED: dict[str, Any] = {"service": "s3", "operation": "PutObject", "code": "AccessDenied", "status": 403}
_SLOW: dict[str, Any] = {"service": "s3", "operation": "PutObject", "code": "SlowDown", "status": 503, "count": TRIES}
_CREATE: dict[str, Any] = {"service": "sagemaker", "operation": "CreateTrainingJob"}
_numbers = itertools.count(1)

_SCRIPT = """
import pathlib, sys, time
import helper, local_wheel, muster.replica.frontends.array_diloco
print("delivered:", helper.NAME, local_wheel.STEP, pathlib.Path("secret.txt").exists(), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


class Tour:
    """The runs, and what was seen on the way."""

    def __init__(self, stack: Deployed, commands: CommandServer, folder: Path) -> None:
        self.stack = stack
        self._commands = commands
        self._folder = folder
        number = next(_numbers)
        self.whole, self.cancelled, self.queued, self.doomed, self.late, self.broken, self.endings, self.refused = (
            stack.run(f"{name}-{number}")
            for name in ("whole", "cancelled", "queued", "doomed", "late", "broken", "endings", "refused")
        )
        self.elastic = stack.run(f"elastic-{number}")
        self.continuation = stack.run(f"{self.broken.name}-x2")
        self.spec_key = f"inbox/{self.endings.name} run.json"
        self.bus = Listener(stack)
        self.people = People(stack)
        self.complaint = b""
        """What lay beside the first spec in the inbox."""
        self.behind: tuple[str, ...] = ()
        """The runs in front of the one that waited in the queue."""
        self.swept: dict[str, Any] = {}
        """What the sweep found."""
        self.expired: list[str] = []
        """What lifecycle rules deleted within years."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them."""
        first = (self.whole, self.cancelled, self.queued, self.doomed, self.late)
        return (*first, self.broken, self.continuation, self.endings, self.refused, self.elastic)

    def take(self) -> None:
        """Take it."""
        stack = self.stack
        with self._capped():
            self._begin_whole()
            stack.start(stack.gated(self.cancelled.name, replicas=2), self.cancelled.name)
            for run in (self.whole, self.cancelled):
                wait_until(f"the plan of {run.name}", lambda key=run.layout.plan: self._document(key))  # type: ignore[misc]
            self._launch_queued()
            self.behind = wait_until("the run in the queue", self._place_in_the_queue)
        # New runs are not queued any more.
        self._begin_doomed()
        self._request_late()
        self._begin_broken()
        self._begin_elastic()
        self._put_endings()
        stack.start(json.loads(BROKEN_SPEC), self.refused.name)
        self._lose_an_instance()
        self._damage_and_cancel()
        self._scale_up_and_down()
        self.queued.wait_for_training(0)
        stack.open_gate(self.whole.name)
        wait_until("the continuation", lambda: _exists(self.continuation))
        for run in set(self.runs) - {self.queued}:
            run.wait()
        # Of a run that was cancelled the result comes after the end.
        self.cancelled.result()
        # Its name is taken.
        self._request(self.late, replicas=1)
        self._end_unseen()
        self.expired = stack.cloud.clock.advance(timedelta(days=3_000))

    def leave(self) -> None:
        """Leave the stack as it was."""
        for name, environment in self._uncapped.items():
            self.stack.functions.update_function_configuration(FunctionName=name, Environment=environment)
        self.stack.s3.delete_object(Bucket=self.stack.bucket, Key=QUEUE_KEY)
        self.stack.cloud.faults.clear()
        self.stack.stop_everything()

    # --- the runs ------------------------------------------------------------------------------

    def _begin_whole(self) -> None:
        """Rank by rank: an instance is lost, there is no capacity, a launch is throttled and then its answer is lost.

        Rank 3 is refused, and the record of rank 4 is damaged. Rank 5 is answered as by a function of an older version.
        """
        stack, run = self.stack, self.whole
        stack.s3.put_object(Bucket=stack.bucket, Key=run.layout.record(4), Body=b"damaged")
        job = f"*-{run.name}"
        for fault in (
            LostInstance(job=f"{job}-r0-a1"),
            CapacityError(job=f"{job}-r1-a1"),
            CallError(**_CREATE, resource=f"{job}-r2-*", code="ThrottlingException", status=400, count=TRIES),
            CallError(**_CREATE, resource=f"{job}-r2-*", after_effect=True),
            CallError(**_CREATE, resource=f"{job}-r3-*", code="New", status=400),
            # What is given up and settled is refused once: it is asked for again.
            CallError(**_DENIED, resource=f"*control/{run.name}/lost/4*"),
            CallError(**_DENIED, resource=f"*{run.layout.result}"),
        ):
            stack.cloud.faults.add(fault)
        fields: dict[str, Any] = {
            "on_replica_failure": "continue",
            "min_replicas": 4,
            "reruns": {"capacity": {"max_reruns": 1, "delay_seconds": 3}, "unknown": {"max_reruns": 0}},
            "tags": {"stage": "tour"},
        }
        stack.start(stack.gated(run.name, replicas=6, **fields), run.name)

    def _launch_queued(self) -> None:
        """`muster launch` with a folder. It waits in the queue, where its token is refused once and then for long."""
        stack, run = self.stack, self.queued
        code = self._folder / "code"
        code.mkdir()
        (code / "script.py").write_text(_SCRIPT)
        (code / "helper.py").write_text("NAME = 'helper'\n")
        (code / "secret.txt").write_text("stays here")
        (code / ".musterignore").write_text("secret.*\n")
        (code / "requirements.txt").write_text("--no-index\n./local_wheel-1.0-py3-none-any.whl\n")
        _write_wheel(code)
        program = {"entrypoint": ["python", "script.py"], "arguments": [str(stack.gates / run.name)]}
        file = self._folder / "run.json"
        file.write_text(json.dumps({"name": run.name, "replicas": 1, "source_dir": "code", **program}))
        token = f"*control/{run.name}/queue_token.json"
        stack.cloud.faults.add(CallError(**_DENIED, resource=token))
        stack.cloud.faults.add(CallError(**_SLOW, resource=token))
        outcome = self._commands.run(("launch", str(file), "--json"), Path.cwd(), stack.cloud.environment(os.environ))
        assert outcome.returncode == 0, outcome.stderr

    def _begin_doomed(self) -> None:
        """The console's example, whose plan can never be written here."""
        stack, run = self.stack, self.doomed
        stack.cloud.faults.add(CallError(**_DENIED, resource=f"*{run.layout.plan}", count=None))
        stack.start(json.loads(stack.outputs["ExampleInput"]), run.name)

    def _request_late(self) -> None:
        """By an event on the bus: a run whose launch gate stays shut."""
        self.stack.cloud.faults.add(SlowStart(job=f"*-{self.late.name}-r1-a1", seconds=90))
        self._request(self.late, replicas=2, launch_gate={"replicas": 2, "within_seconds": 5})

    def _request(self, run: Run, **fields: Any) -> None:
        entry = {
            "EventBusName": self.stack.outputs["EventBusName"],
            "Source": "team.nightly",
            "DetailType": RUN_REQUESTED,
            "Detail": json.dumps({"spec": {**self.stack.gated(run.name, **fields), "name": run.name}}),
        }
        self.stack.cloud.client("events").put_events(Entries=[entry])

    def _begin_broken(self) -> None:
        """It loses its quorum after three rounds, and is continued to the sixth. Its fence is refused once."""
        stack, run = self.stack, self.broken
        stack.cloud.faults.add(CallError(**_DENIED, resource=f"*{run.layout.fence}"))
        spec = {
            "replicas": 2,
            "trainer": "tests.support.jobs.resuming:train",
            "kwargs": {"rounds": 6, "fail_after": 3},
            "rendezvous": {"grace_seconds": 20.0, "timeout_seconds": 60.0, "snapshot_rounds": 2},
            "continue": {"on": ["user-code"], "max": 1},
        }
        stack.start(spec, run.name)

    def _begin_elastic(self) -> None:
        """One replica of two that there may be."""
        gate = str(self.stack.gates / self.elastic.name)
        spec = {
            "replicas": {"min": 1, "start": 1, "max": 2},
            "trainer": "tests.support.jobs.resuming:train",
            "kwargs": {"rounds": 3, "fail_after": 99, "gate": gate},
        }
        self.stack.start(spec, self.elastic.name)

    def _put_endings(self) -> None:
        """By an object in the inbox, which is broken at first: each replica ends in a way of its own."""
        spec = {
            "name": self.endings.name,
            "replicas": len(ENDINGS),
            "trainer": "tests.support.jobs.endings:train",
            "on_replica_failure": "continue",
            "min_replicas": 1,
            "rendezvous": {"grace_seconds": 0.0, "timeout_seconds": 60.0},
        }
        for text in (BROKEN_SPEC, json.dumps(spec)):
            self.stack.s3.put_object(Bucket=self.stack.bucket, Key=self.spec_key, Body=text.encode())
            if text == BROKEN_SPEC:
                self.complaint = wait_until("the complaint", lambda: self._document(f"{self.spec_key}.error.txt"))

    # --- what befalls them ---------------------------------------------------------------------

    def _lose_an_instance(self) -> None:
        run, rank = self.whole, 5
        run.wait_for_record(rank, "Training")
        self.stack.cloud.faults.add(LostInstance(job=f"*-{run.name}-r{rank}-a1"))
        run.wait_for_status(rank, 2, "Training")

    def _scale_up_and_down(self) -> None:
        """By events on the bus. The parked seat ends with the run."""
        run, client = self.elastic, self.stack.cloud.client("events")
        for replicas in (2, 1):
            entry = {
                "EventBusName": self.stack.outputs["EventBusName"],
                "Source": "team.nightly",
                "DetailType": SCALE_REQUESTED,
                "Detail": json.dumps({"run": run.name, "replicas": replicas}),
            }
            client.put_events(Entries=[entry])
            if replicas == 2:
                run.wait_for_training(1)
        run.wait_for_status(1, 1, "Stopped")
        wait_until("the parked seat", lambda: (found := run.record(1)) is not None and found.decision is not None)
        self.stack.open_gate(run.name)

    def _damage_and_cancel(self) -> None:
        """The wait in the queue has timed out once; a record is damaged before the run of it is cancelled."""
        run, stack = self.cancelled, self.stack
        wait_until("a time-out in the queue", lambda: _entered(self.queued, "Wait in the run queue") > 1)
        for rank in range(2):
            run.wait_for_record(rank, "Training")
        stack.s3.put_object(Bucket=stack.bucket, Key=run.layout.record(0), Body=b"damaged")
        stack.stepfunctions.stop_execution(executionArn=run.execution_arn)

    def _end_unseen(self) -> None:
        """The last run is stopped while no event of it arrives: only the sweep sees it."""
        events = self.stack.cloud.client("events")
        [rule] = [item["Name"] for item in events.list_rules()["Rules"] if "-StopEarlyEnds" in item["Name"]]
        events.disable_rule(Name=rule)
        try:
            self.stack.stepfunctions.stop_execution(executionArn=self.queued.execution_arn)
            self.swept = self.stack.invoke("Sweep", {"young_seconds": 0})
        finally:
            events.enable_rule(Name=rule)

    # --- the queue -----------------------------------------------------------------------------

    @contextmanager
    def _capped(self) -> Iterator[None]:
        """What the setting runs.max_concurrent_replicas does to the functions; at the end *plan* forgets it again."""
        functions = self.stack.functions
        names = [self.stack.function_name(name) for name in _CAPPED]
        self._uncapped = {
            name: functions.get_function_configuration(FunctionName=name)["Environment"] for name in names
        }
        for name, environment in self._uncapped.items():
            variables = {**environment["Variables"], _VARIABLE: str(CAP)}
            functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
        yield
        functions.update_function_configuration(FunctionName=names[0], Environment=self._uncapped[names[0]])

    def _place_in_the_queue(self) -> tuple[str, ...] | None:
        body = self._document(QUEUE_KEY)
        return None if body is None else Queue.from_json(body, QUEUE_KEY).before(self.queued.name)

    def _document(self, key: str) -> bytes | None:
        return self.whole.document(key)


def histories(run: Run) -> Iterator[list[dict[str, Any]]]:
    """What happened in a run's execution, and then in that of each of its replicas."""
    states = run.stack.stepfunctions
    arns = [run.execution_arn]
    for found in states.list_map_runs(executionArn=run.execution_arn)["mapRuns"]:
        pages = states.get_paginator("list_executions").paginate(mapRunArn=found["mapRunArn"])
        arns += [item["executionArn"] for page in pages for item in page["executions"]]
    for arn in arns:
        pages = states.get_paginator("get_execution_history").paginate(executionArn=arn)
        yield [event for page in pages for event in page["events"]]


def _entered(run: Run, state: str) -> int:
    events = next(histories(run))
    return sum(event.get("stateEnteredEventDetails", {}).get("name") == state for event in events)


def _exists(run: Run) -> bool:
    try:
        run.describe()
    except run.stack.stepfunctions.exceptions.ExecutionDoesNotExist:
        return False
    return True


def _write_wheel(folder: Path) -> None:
    """A wheel of one module, as small as a wheel can be."""
    with zipfile.ZipFile(folder / "local_wheel-1.0-py3-none-any.whl", "w") as wheel:
        info = "local_wheel-1.0.dist-info"
        wheel.writestr("local_wheel.py", "STEP = 1.0\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: local-wheel\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
