"""Settle, Stop and Sweep of a run of 10,000 replicas, in virtual time.

The functions are the real ones. AWS is the one in memory, in the simulation's time: each call takes as long as AWS
documents, an account's rates are kept, and a call that comes too fast is refused, as AWS does it.
"""

from __future__ import annotations

import io
import random
import tarfile
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bench.table import Row
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.run_document import Manifest
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.runtime import clock, parallel
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.settle import finish_run
from muster.control.stop import StopRequest, stop_run
from muster.control.sweep import SweepRequest, sweep
from muster.options.elastic.contract.seats import ParkedSeat, parked_key
from muster.options.elastic.control.seat_changes import ScaleRequest
from muster.options.elastic.control.seat_changes import scale as change_seats
from muster.options.elastic.control.seat_documents import seats_of
from tests.memory.harness import PREFIX, RUN, ControlHarness
from tests.simulation.faults import CallFault, throttled
from tests.simulation.kernel import START, Activity, Kernel
from tests.simulation.simulated_aws import SimulatedCloud

REPLICAS, FEWER = 10_000, 100
MEMORY_MIB = 512
SETTLE_SECONDS = 300
SLACK = 1.1

# S3's guidelines on performance: small objects take roughly 100 to 200 ms. SageMaker documents no latency.
_CALL_SECONDS = 0.15
# Calls a second of an account. ListTrainingJobs: the quota, which cannot be raised. The others are not published; the
# stack launches as many jobs a second by default.
LIST_RATE, JOB_RATE = 2.0, 10.0
_RATES = {
    "ListTrainingJobs": LIST_RATE,
    "StopTrainingJob": JOB_RATE,
    "DescribeTrainingJob": JOB_RATE,
    "ListTags": JOB_RATE,
}
_PAGE = 100  # ListTrainingJobs: MaxResults
_FUNCTION_SECONDS = 855.0  # of Lambda's 900, less the reserve for writing the result
_ASYNC_RETRY_SECONDS = (60.0, 120.0)  # Lambda
_EVENT_SECONDS = 2.0  # from a change of a job to the record that has it
_STATUSES = {"Completed": JobStatus.COMPLETED, "InProgress": JobStatus.IN_PROGRESS}


def run() -> list[Row]:
    """The time and the memory of a settlement; when the last job of a stop and of a sweep is asked to stop."""
    settled = settle_all(REPLICAS)
    stopped, swept, cancelled = stop_all(REPLICAS), sweep_all(REPLICAS), cancel_all(REPLICAS)
    opened, closed = open_all(FEWER, REPLICAS), close_all(REPLICAS, FEWER)
    at_the_rate, some = REPLICAS / JOB_RATE, (REPLICAS - FEWER) / JOB_RATE
    listing = REPLICAS / _PAGE / LIST_RATE
    note = f"{REPLICAS:,} replicas; {JOB_RATE:.0f} calls a second of StopTrainingJob"
    return [
        Row("settle: result.json is written", settled.result_seconds, "s", f"<= {SETTLE_SECONDS}", note="virtual time"),
        Row("settle: all is done", settled.seconds, "s", "<= 855", note="the page and the marks included"),
        Row("settle: memory", settled.memory_mib, "MiB", f"<= {MEMORY_MIB}", note="at most, besides the imports"),
        Row("stop: the last call", stopped.last_seconds, "s", f"<= {SLACK * at_the_rate:.0f}", note=note),
        Row("stop: calls of StopTrainingJob", stopped.stops, "calls", note=f"{stopped.calls} calls of the function"),
        Row("cancel: the last call of StopTrainingJob", cancelled.last_seconds, "s", f"<= {SLACK * at_the_rate:.0f}"),
        Row("cancel: the end of the run is complete", cancelled.seconds, "s", note=f"{cancelled.calls} calls"),
        Row("sweep: the last call", swept.last_seconds, "s", f"<= {SLACK * (at_the_rate + listing):.0f}", note=note),
        Row("sweep: calls of StopTrainingJob", swept.stops, "calls", note=f"{swept.calls} calls of the function"),
        Row(f"scale {FEWER} to {REPLICAS:,}: the last launch", opened, "s", f"<= {SLACK * some:.0f}", note=note),
        Row(
            f"scale {REPLICAS:,} to {FEWER}: the last call",
            closed.last_seconds,
            "s",
            f"<= {SLACK * some:.0f}",
            note=f"{closed.stops} calls of StopTrainingJob, {closed.calls} calls of the function",
        ),
    ]


@dataclass(frozen=True)
class Settled:
    """A settlement; `memory_mib` is the most that it had allocated."""

    result_seconds: float
    seconds: float
    memory_mib: float


@dataclass(frozen=True)
class Stopped:
    """Jobs that were stopped: when the last one was, by how many requests, in how many calls of the function."""

    last_seconds: float
    stops: int
    calls: int


@dataclass(frozen=True)
class Cancelled:
    """A cancelled run: when its end was complete, when the last job was stopped, in how many calls of the function."""

    seconds: float
    last_seconds: float
    calls: int


def settle_all(replicas: int) -> Settled:
    """Settle a run of so many replicas, all of which have succeeded and left a manifest of the largest allowed form."""
    with _Scale(replicas, "Completed") as scale:
        manifest = _archive(Manifest(checkpoint_s3_bucket="s3://b/c", round=9, checksum="ab" * 32, metrics=_METRICS))
        for rank in range(replicas):
            scale.put(f"output/{RUN}/{scale.job(rank)}/output/output.tar.gz", manifest)
        written: list[float] = []

        def note(_: str, shown: str, __: str) -> None:
            if shown.endswith("result.json"):
                written.append(scale.kernel.seconds)

        scale.cloud.on_call = note
        tracemalloc.start()
        scale.act(lambda: finish_run(scale.harness.plane, scale.run, scale.budget()))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return Settled(written[-1], scale.kernel.seconds, most / 2**20)


def stop_all(replicas: int, function_seconds: float = _FUNCTION_SECONDS) -> Stopped:
    """Stop a run of so many replicas that train. The workflow calls again where the time was too short."""
    with _Scale(replicas, "InProgress", function_seconds) as scale:
        stops = scale.note_stops()

        def call() -> int:
            for tried in range(60):
                try:
                    stop_run(scale.harness.plane, StopRequest(run=RUN, reason="why"), scale.budget())
                except OutOfTimeError:
                    clock.sleep(random.uniform(0, min(300.0, 2.0 ** (tried + 1))))  # noqa: S311 - jitter
                else:
                    return tried + 1
            return 60

        calls = scale.act(call)
        return Stopped(stops[-1], scale.cloud.counts["StopTrainingJob"], calls)


def cancel_all(replicas: int) -> Cancelled:
    """Clear up after a run of so many replicas that was cancelled while they trained. Lambda calls again after errors.

    Raises:
        Exception: the error of the last of three calls.
    """
    with _Scale(replicas, "InProgress") as scale:
        harness = scale.harness
        scale.cloud.is_direct = True
        arn = harness.cloud.workflow.execution_arn(RUN)
        harness.cloud.client("stepfunctions").stop_execution(executionArn=arn)
        scale.cloud.is_direct = False
        ended = ExecutionEnded(execution_arn=arn, name=RUN, status="ABORTED", started_at=START)
        stops = scale.note_stops()

        def call() -> int:
            for tried, pause in enumerate((*_ASYNC_RETRY_SECONDS, None), start=1):
                try:
                    clear_up(harness.plane, scale.run, ended, scale.budget())
                except Exception:
                    if pause is None:
                        raise
                    clock.sleep(pause)
                else:
                    return tried
            raise AssertionError

        calls = scale.act(call)
        return Cancelled(scale.kernel.seconds, stops[-1], calls)


def sweep_all(replicas: int) -> Stopped:
    """Sweep so many orphans. Lambda calls again where the time was too short."""
    with _Scale(replicas, "InProgress") as scale:
        scale.harness.cloud.workflow.succeed(RUN)
        stops = scale.note_stops()

        def call() -> int:
            for tried, pause in enumerate((*_ASYNC_RETRY_SECONDS, 0.0)):
                request = SweepRequest(young_seconds=0)
                found = sweep(scale.harness.plane, scale.harness.executions, request, scale.budget())
                if not found.left:
                    return tried + 1
                clock.sleep(pause)
            return 1 + len(_ASYNC_RETRY_SECONDS)

        calls = scale.act(call)
        return Stopped(stops[-1], scale.cloud.counts["StopTrainingJob"], calls)


def open_all(before: int, after: int) -> float:
    """When the last seat may be launched, and its workflow knows it, in seconds: a run gets `after` replicas."""
    with _Scale(before, "InProgress", seats={"min": before, "start": before, "max": after}) as scale:
        told: list[float] = []
        scale.cloud.on_call = lambda name, *_: told.append(scale.kernel.seconds) if "SendTask" in name else None
        for rank in range(before, after):
            token = scale.harness.cloud.workflow.token(RUN)
            seat = ParkedSeat(run=RUN, rank=rank, attempt=1, token=token, armed_at="t", reason="it is not wanted")
            scale.put(parked_key(RUN, rank), seat.to_json())
        scale.act(lambda: scale.change(after))
        scale.cloud.is_direct = True
        seats = seats_of(scale.run)
        slots = (seats.scalings[-1].slot(rank) for rank in (before, after - 1))
        last = max((timestamps.parse(slot) - START).total_seconds() for slot in slots)
        assert len(told) >= after - before, "each workflow is told"
        return max(last, *told)


def close_all(before: int, after: int) -> Stopped:
    """Let all but `after` replicas leave a run of so many. Lambda calls again where the time was too short."""
    with _Scale(before, "InProgress", seats={"min": after, "start": before, "max": before}) as scale:
        stops = scale.note_stops()
        calls = scale.act(lambda: scale.change(after))
        return Stopped(stops[-1], scale.cloud.counts["StopTrainingJob"], calls)


# --- a large run ------------------------------------------------------------------------------------

_LAUNCHED, _ENDED = timestamps.text(START), timestamps.text(START + timedelta(hours=1))
_METRICS = {f"a-metric-whose-name-is-as-long-as-it-may-be-{number:04}": 1.0 for number in range(32)}


class _Rates:
    """In place of a schedule's faults: calls that come too fast for the account are refused."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._left = dict(_RATES)
        self._since = dict.fromkeys(_RATES, 0.0)
        self.quiet = False

    def pause(self, longest: float) -> float:
        """How long an SDK waits before its next try."""
        return random.uniform(0, longest)  # noqa: S311 - jitter

    def of_call(self, _caller: object, service: str, operation: str, _parameters: object) -> CallFault | None:
        """A refusal; None where the rate allows the call. A token bucket that holds one second's calls."""
        rate = _RATES.get(operation)
        if rate is None:
            return None
        now = self._kernel.seconds
        left = min(rate, self._left[operation] + rate * (now - self._since[operation]))
        self._since[operation] = now
        self._left[operation] = left - 1 if left >= 1 else left
        return None if left >= 1 else CallFault(error=throttled(service))


@dataclass
class _Function:
    """Who calls: one invocation, whose calls take so long."""

    name: str = "function"
    pace: float = _CALL_SECONDS / 2

    def check(self) -> None:
        """It is not ended."""


class _Pool:
    """In place of a pool of threads: so many workers that take the items one after another, in virtual time."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel = kernel
        self._workers = workers
        self._waiting: deque[Callable[[], None]] = deque()

    def __enter__(self) -> _Pool:
        return self

    def submit(self, work: Callable[[Any], Any], item: object) -> SimpleNamespace:
        """Queue the work; the answer's `result()` is there once the pool is left."""
        found: dict[str, Any] = {}

        def do() -> None:
            try:
                found["value"] = work(item)
            except Exception as error:
                found["error"] = error

        def result() -> object:
            if "error" in found:
                raise found["error"]
            return found["value"]

        self._waiting.append(do)
        return SimpleNamespace(result=result)

    def __exit__(self, *_: object) -> None:
        def labour() -> None:
            while self._waiting:
                self._waiting.popleft()()

        current = self._kernel.current
        owner = None if current is None else current.owner
        begun = [self._kernel.spawn("worker", labour, owner=owner) for _ in range(self._workers)]
        for activity in begun:
            self._kernel.join(activity)


class _Scale:
    """A cloud with a run of so many replicas, whose jobs have `status`, and the control plane over it."""

    def __init__(
        self,
        replicas: int,
        status: str,
        function_seconds: float = _FUNCTION_SECONDS,
        seats: dict[str, int] | None = None,
    ) -> None:
        """`replicas` have jobs; `seats`: of an elastic run, which may have more."""
        random.seed(0)
        self._seats = seats
        self._function_seconds = function_seconds
        self.kernel = Kernel()
        self.cloud = SimulatedCloud(self.kernel, _Rates(self.kernel))  # type: ignore[arg-type]
        self._replicas = replicas
        self._status = status
        self.harness = ControlHarness(cloud=self.cloud)
        self._installed = self._install()

    def __enter__(self) -> _Scale:
        self._installed.__enter__()
        self.cloud.is_direct = True
        self.run = self.harness.plan(replicas=self._seats or self._replicas)
        for rank in range(self._replicas):
            self._launch(rank)
        self.cloud.is_direct = False
        return self

    def __exit__(self, *_: object) -> None:
        self._installed.__exit__(None, None, None)

    @contextmanager
    def _install(self) -> Iterator[None]:
        pool = patch.object(parallel, "ThreadPoolExecutor", lambda max_workers: _Pool(self.kernel, max_workers))
        with self.cloud.clock.install(), pool:
            yield

    def budget(self) -> TimeBudget:
        """The time of a call of the function."""
        return self.harness.plane.allow(TimeBudget.of(self._function_seconds))

    def job(self, rank: int) -> str:
        """The name of a replica's job."""
        return str(JobName(PREFIX, RUN, rank, 1))

    def put(self, key: str, body: bytes) -> None:
        """Write an object, in no time."""
        self.cloud.is_direct = True
        self.cloud.client("s3").put_object(Bucket=self.cloud.bucket, Key=key, Body=body)
        self.cloud.is_direct = False

    def act(self, work: Callable[[], Any]) -> Any:
        """The answer of `work`, which is done in virtual time."""
        activity: Activity = self.kernel.spawn("function", work, owner=_Function())
        self.kernel.run(until=10 * 86_400.0, most=50_000_000)
        if activity.error is not None:
            raise activity.error
        return activity.value

    def change(self, replicas: int) -> int:
        """Scale the run; in how many calls of the function. Lambda calls it again after errors."""
        request = ScaleRequest(run=RUN, replicas=replicas, by="one")
        for tried, pause in enumerate((*_ASYNC_RETRY_SECONDS, None), start=1):
            try:
                change_seats(self.harness.plane, request, int(JOB_RATE), self.budget())
            except OutOfTimeError:
                if pause is None:
                    raise
                clock.sleep(pause)
            else:
                return tried
        raise AssertionError

    def note_stops(self) -> list[float]:
        """The times at which jobs are asked to stop, from now on; their records follow."""
        stops: list[float] = []

        def note(job: str, _: str) -> None:
            stops.append(self.kernel.seconds)
            name = JobName.parse(job, PREFIX)
            if name is not None:
                self.kernel.after(_EVENT_SECONDS, lambda: self._record(name.rank, JobStatus.STOPPING.value))
                ended = self.cloud.training.stop_seconds + _EVENT_SECONDS
                self.kernel.after(ended, lambda: self._record(name.rank, JobStatus.STOPPED.value))

        self.cloud.on_stop = note
        return stops

    def _launch(self, rank: int) -> None:
        replica = self.run.replica(rank)
        attempt = Attempt(attempt=1, job=self.job(rank))
        self.run.backends.training.create(replica.request([attempt]))
        if self._status == "Completed":
            self.cloud.training.complete(attempt.job)
        self._record(rank, self._status)

    def _record(self, rank: int, status: str) -> None:
        ended = status in {"Completed", "Stopped"}
        attempt = Attempt(
            attempt=1,
            job=self.job(rank),
            launched_at=_LAUNCHED,
            instance_type="ml.m5.large",
            ended_at=_ENDED if ended else None,
            status=status,
            secondary=status,
            failure_class=FailureClass.STOPPED_BY_MUSTER if status == "Stopped" else None,
        )
        follows = Next.DONE if status == "Completed" else Next.FAIL
        decision = Decision(next=follows, attempt=1) if ended else None
        record = Record(
            run=RUN,
            rank=rank,
            token="t",  # noqa: S106 - of a task that does not exist
            armed_at="t",
            attempts=(attempt,),
            decision=decision,
        )
        direct, self.cloud.is_direct = self.cloud.is_direct, True
        key = self.run.documents.layout.record(rank)
        self.cloud.client("s3").put_object(Bucket=self.cloud.bucket, Key=key, Body=record.to_json())
        self.cloud.is_direct = direct


def _archive(manifest: Manifest) -> bytes:
    body, packed = manifest.to_json(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(body)
        archive.addfile(entry, io.BytesIO(body))
    return packed.getvalue()
