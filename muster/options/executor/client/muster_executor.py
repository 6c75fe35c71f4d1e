"""The executor. It keeps no state of its runs: a handle names its run, and the run is read."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from muster.client.client_errors import NoResultError, WaitTimeoutError
from muster.client.logs.log_lines import LogLine
from muster.client.runs.continued_runs import generations, latest
from muster.client.runs.run_status import ReplicaStatus, RunStatus
from muster.client.sdk import POLL_SECONDS, Muster, Run
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName, fresh_run_name, run_name, time_suffix
from muster.contract.run.result import Result
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.options.executor.client.handle import BACKEND, JOB, RUN, SUBMITTED, ReplicaHandle, run_of
from muster.options.executor.client.launching import Fields, instance_type_of, launch_spec
from muster.options.executor.client.replica_result import CollectedResult, result_of, state_of

# How often `collect` looks whether all replicas that it waits for were cancelled, while their run continues.
_LOOK_SECONDS = 30.0


class MusterExecutor:
    """A ServerlessExecutor that starts runs of a stack: every replica is its own training job.

    Args:
        role_arn, image_uri, output_s3_path, volume_size_gb: as in SageMakerExecutor; the stack has a default for each.
        instance_type, cpu_instance_type: for launches without `gpu`; the second one is preferred. The stack has a
            default.
        run_id: name of the run that is launched. A second launch with the same name and arguments is the same run until
            it has ended. Without it every launch makes a new run, whose name begins with a random `run_id`.
        region, stack: where Muster is deployed.
        sagemaker_client, logs_client: clients of boto3 for the calls to SageMaker and CloudWatch Logs.
        spec: further fields of Muster's spec for every launch; the arguments of a launch override them.

    Each argument but the clients, `region`, `stack` and `spec` is an attribute, which may be changed between launches.
    """

    backend_name = BACKEND
    supports_inter_replica_network = False

    def __init__(
        self,
        *,
        role_arn: str | None = None,
        image_uri: str | None = None,
        output_s3_path: str | None = None,
        instance_type: str | None = None,
        cpu_instance_type: str | None = None,
        volume_size_gb: int | None = None,
        run_id: str | None = None,
        region: str | None = None,
        sagemaker_client: Any = None,
        logs_client: Any = None,
        stack: str | None = None,
        spec: Fields | None = None,
    ) -> None:
        self.role_arn = role_arn
        self.image_uri = image_uri
        self.output_s3_path = output_s3_path
        self.instance_type = instance_type
        self.cpu_instance_type = cpu_instance_type
        self.volume_size_gb = volume_size_gb
        self._is_named = run_id is not None
        self.run_id = run_id or f"diloco-{secrets.token_hex(3)}"
        self._fields = dict(spec or {})
        given = {"sagemaker": sagemaker_client, "logs": logs_client}
        clients = {service: client for service, client in given.items() if client is not None}
        region = region or next((str(client.meta.region_name) for client in clients.values()), None)
        self._muster = Muster(stack, region=region, clients=clients)
        self._place = {**({"stack": stack} if stack else {}), **({"region": region} if region else {})}

    def __repr__(self) -> str:
        return f"MusterExecutor(run_id={self.run_id!r}, muster={self._muster!r})"

    def _repr_html_(self) -> str:
        """The newest runs of the stack as a table, for notebooks."""
        return self._muster._repr_html_()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MusterExecutor) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self._muster)

    def launch_replicas(
        self,
        n_replicas: int,
        entrypoint: str | Callable[..., object],
        entrypoint_args: Fields,
        *,
        gpu: str | None = None,
        timeout: int = 3_600,
    ) -> list[ReplicaHandle]:
        """Start `n_replicas` replicas as one run and return at once; `handles[i].rank == i`.

        The trainer is the trainer_module and trainer_fn of `entrypoint_args`, or else `entrypoint`: a text such as
        `package.module:function`, or a function of a module. It gets `trainer_kwargs`, at most 250 KB as JSON. With a
        `rendezvous_uri` it brings its own loop; its rendezvous is in the stack's bucket, whatever
        that URI is. `timeout` limits an attempt, in seconds.

        Raises:
            SpecError: the spec has problems, all of which are listed; nothing was created. A ValueError.
            GpuError: no instance type is known for that GPU. A ValueError.
            RunNameTakenError: `run_id` belongs to another run. A RuntimeError.
            ClientError: AWS cannot be reached or refuses. A RuntimeError.
        """
        fields = {**self._spec_fields(), "replicas": n_replicas, "max_runtime_seconds": int(timeout)}
        chosen = (self.cpu_instance_type or self.instance_type) if gpu is None else instance_type_of(gpu)
        if chosen is not None:
            fields["instance_type"] = chosen
        spec = launch_spec({**fields, **self._name(fields)}, entrypoint, entrypoint_args)
        run = self._muster.launch(spec)
        now = time.time()
        first_jobs = (JobName(self._muster.job_prefix, run.name, rank, 1) for rank in range(n_replicas))
        return [
            ReplicaHandle(job.rank, BACKEND, {RUN: run.name, JOB: str(job), SUBMITTED: now, **self._place})
            for job in first_jobs
        ]

    def _spec_fields(self) -> dict[str, Any]:
        former = {"role_arn": self.role_arn, "image": self.image_uri, "volume_gb": self.volume_size_gb}
        fields = {**self._fields, **{key: value for key, value in former.items() if value is not None}}
        output = fields.get("output_data_config") or {}
        # A section of another type is refused at the launch, with all other problems.
        if self.output_s3_path is not None and isinstance(output, Mapping):
            fields["output_data_config"] = {**output, "s3_output_path": self.output_s3_path}
        return fields

    def _name(self, fields: Fields) -> dict[str, str]:
        if self._is_named:
            return {"name": run_name(self.run_id)}
        return (
            {}
            if "name" in fields
            else {"name": fresh_run_name(self.run_id, time_suffix(datetime.now(UTC), secrets.choice))}
        )

    def poll(self, handle: ReplicaHandle) -> str:
        """`pending`, `running`, `succeeded`, `failed` or `cancelled`; an attempt that is rerun counts as pending.

        Raises:
            HandleError: the handle names no run. A ValueError.
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        status = latest(self._muster, self._run_of(handle)).status
        return state_of(_replica(status, handle.rank), status.state).value

    def stream_logs(self, handle: ReplicaHandle, *, n_lines: int = 200) -> str:
        """The last `n_lines` lines that the replica has written, in all its attempts; those of each job below a line
        `[rank 0] job=… stream=…`.

        Raises:
            HandleError: the handle names no run. A ValueError.
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        found: list[LogLine] = []
        runs = list(generations(self._muster, self._run_of(handle), wait=False))
        for run in reversed(runs):
            if len(found) < n_lines:
                found = [*run.logs(handle.rank, tail=n_lines - len(found)), *found]
        if found:
            return log_text(handle.rank, found[-1].job, found)
        latest_job = _replica(runs[-1].status(), handle.rank).job
        return log_text(
            handle.rank, latest_job or str(JobName(self._muster.job_prefix, runs[-1].name, handle.rank, 1)), []
        )

    def cancel(self, handle: ReplicaHandle) -> None:
        """Stop the replica's training job; the others train on. If the run cannot do without it, the run is stopped.

        A replica that has ended, and a run that has ended, stay as they are. If the run has been continued, its
        continuation is meant.

        Raises:
            HandleError: the handle names no run. A ValueError.
            NoJobError: for half a minute the replica had no job to stop.
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        name = self._run_of(handle)
        run, status, _ = latest(self._muster, name)
        if status.state.is_terminal or _replica(status, handle.rank).has_ended:
            return
        if can_do_without(parse_spec(run.spec()), status, handle.rank):
            run.cancel_replica(handle.rank)
        else:
            self._muster.run(name).cancel()

    def collect(self, handles: Sequence[ReplicaHandle], *, timeout: float | None = None) -> list[CollectedResult]:
        """The replicas' results in the order of `handles`, once their runs have ended or `timeout` seconds have passed.

        With `timeout=0` it checks once. A replica that has not ended is `pending` or `running`, without a result. If
        all replicas of a run that are waited for were cancelled, the end of the run is not.

        Raises:
            HandleError: a handle names no run. A ValueError.
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        runs = [self._run_of(handle) for handle in handles]
        ranks = {name: {one.rank for one, of in zip(handles, runs, strict=True) if of == name} for name in runs}
        ends = {name: self._end(name, found, deadline) for name, found in ranks.items()}
        return [result_of(handle.rank, *ends[name]) for handle, name in zip(handles, runs, strict=True)]

    def _end(self, name: str, ranks: set[int], deadline: float) -> tuple[RunStatus, Result | None]:
        """The end of the run and its continuations; the status, once `deadline` has passed or all are cancelled."""
        while True:
            run, status, _ = latest(self._muster, name)
            if status.state.is_terminal:
                return status, _result(run)
            left = deadline - time.monotonic()
            if left <= 0 or all(_replica(status, rank).is_cancelled for rank in ranks):
                return status, None
            # If a continuation is about to start, this returns at once.
            with suppress(WaitTimeoutError):
                run.wait(min(left, _LOOK_SECONDS))
            if status.awaits_continuation:
                time.sleep(min(POLL_SECONDS, left))

    def _run_of(self, handle: ReplicaHandle) -> str:
        return run_of(handle, lambda: self._muster.job_prefix)


def can_do_without(spec: Spec, status: RunStatus, rank: int) -> bool:
    """Whether the run continues if the replica `rank` is stopped: enough others have succeeded, or still can. Pure."""
    others = [one for one in status.replicas if one.rank != rank]
    lost = [one for one in others if one.status == JobStatus.STOPPING or one.rerun_follows is False]
    succeeded = [one for one in lost if one.status == JobStatus.COMPLETED]
    return len(others) - len(lost) + len(succeeded) >= spec.quorum


def _replica(status: RunStatus, rank: int) -> ReplicaStatus:
    return next((replica for replica in status.replicas if replica.rank == rank), ReplicaStatus(rank=rank))


def _result(run: Run) -> Result | None:
    try:
        return run.result()
    except NoResultError:
        return None


def log_text(rank: int, job: str, lines: Sequence[LogLine]) -> str:
    """The lines, each job's below a line that names it; `job` is the one that is named while there are none."""
    if not lines:
        return f"[rank {rank}] job={job}: no CloudWatch log stream yet (the job is pending or has not started)."
    text: list[str] = []
    stream = None
    for line in lines:
        if line.stream != stream:
            stream = line.stream
            text.append(f"[rank {rank}] job={line.job} stream={stream}")
        text.append(line.message)
    return "\n".join(text)
