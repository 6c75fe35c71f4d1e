"""The executor. It keeps no state: a handle names its run, and the run is read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from muster.client.errors import NoResultError, WaitTimeoutError
from muster.client.runs.continued_runs import generations, latest
from muster.client.runs.run_status import ReplicaStatus, RunStatus
from muster.client.sdk import POLL_SECONDS, Muster, Run
from muster.contract.errors import MusterError
from muster.contract.names import run_name
from muster.contract.run.result import Result
from muster.executor.handle import BACKEND, ReplicaHandle, run_of
from muster.executor.replica_result import CollectedResult, result_of

Fields = Mapping[str, Any]
"""Fields of a spec, or arguments of a trainer, as a caller writes them: `parse_spec` checks them."""

_TYPES = {
    "A100": "ml.p4d.24xlarge",
    "H100": "ml.p5.48xlarge",
    "H200": "ml.p5e.48xlarge",
    "B200": "ml.p6-b200.48xlarge",
    "L40S": "ml.g6e.12xlarge",
    "A10G": "ml.g5.2xlarge",
    "L4": "ml.g6.2xlarge",
}
"""The instance types behind the protocol's abstract GPU names."""


class GpuError(MusterError):
    """No instance type is known for a GPU."""

    def __init__(self, gpu: str) -> None:
        super().__init__(f"gpu: found {gpu!r}; choose {', '.join(_TYPES)}, or an instance type such as ml.g5.2xlarge.")


class MusterExecutor:
    """A ServerlessExecutor that starts runs of a stack: every replica is its own training job.

    Args:
        run_id: name of the run that is launched. A second launch with the same name and arguments is the same run until
            it has ended. Without it every launch makes a new run.
        spec: further fields of Muster's spec (docs/spec.md) for every launch; the arguments of a launch override them.
        stack, region: where Muster is deployed.
        role_arn, image_uri, output_s3_path, instance_type, cpu_instance_type, volume_size_gb: as in SageMakerExecutor;
            the stack has a default for each.
    """

    backend_name = BACKEND
    supports_inter_replica_network = False

    def __init__(
        self,
        *,
        run_id: str | None = None,
        spec: Fields | None = None,
        stack: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        image_uri: str | None = None,
        output_s3_path: str | None = None,
        instance_type: str | None = None,
        cpu_instance_type: str | None = None,
        volume_size_gb: int | None = None,
    ) -> None:
        self._muster = Muster(stack, region=region)
        self._place = {**({"stack": stack} if stack else {}), **({"region": region} if region else {})}
        self._run_id = run_id
        self._instance_type, self._cpu_instance_type = instance_type, cpu_instance_type
        former = {"role_arn": role_arn, "image": image_uri, "volume_gb": volume_size_gb}
        self._spec = {**(spec or {}), **{key: value for key, value in former.items() if value is not None}}
        output = self._spec.get("output_data_config") or {}
        # A section of another type is refused at the launch, with all other problems.
        if output_s3_path is not None and isinstance(output, Mapping):
            self._spec["output_data_config"] = {**output, "s3_output_path": output_s3_path}

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
        `package.module:function`, or a function of a module. It gets `trainer_kwargs`, at most 250 KB as JSON.
        `rendezvous_uri` is not used: the rendezvous is in the stack's bucket. `timeout` limits an attempt, in seconds.

        Raises:
            SpecError: the spec has problems, all of which are listed; nothing was created.
            GpuError: no instance type is known for that GPU.
            RunNameTakenError: `run_id` belongs to another run.
            ClientError: AWS cannot be reached or refuses.
        """
        document: dict[str, Any] = {
            **self._spec,
            "replicas": n_replicas,
            "trainer": _trainer(entrypoint, entrypoint_args),
            "kwargs": entrypoint_args.get("trainer_kwargs") or {},
            "max_runtime_seconds": int(timeout),
        }
        chosen = self._chosen_type(gpu)
        if chosen is not None:
            document["instance_type"] = chosen
        if self._run_id is not None:
            document["name"] = run_name(self._run_id)
        run = self._muster.launch(document)
        return [ReplicaHandle(rank, BACKEND, {"run": run.name, **self._place}) for rank in range(n_replicas)]

    def _chosen_type(self, gpu: str | None) -> str | None:
        if gpu is None:
            return self._cpu_instance_type or self._instance_type
        return _instance_type_of(gpu)

    def poll(self, handle: ReplicaHandle) -> str:
        """`pending`, `running`, `succeeded`, `failed` or `cancelled`; an attempt that is rerun counts as pending.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        status = latest(self._muster, run_of(handle)).status
        return _replica(status, handle.rank).state_in(status.state).value

    def stream_logs(self, handle: ReplicaHandle, *, n_lines: int = 200) -> str:
        """The last `n_lines` lines that the replica has written, in all its attempts.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        found: list[str] = []
        for run in reversed(list(generations(self._muster, run_of(handle), wait=False))):
            if len(found) < n_lines:
                last = run.logs(handle.rank, tail=n_lines - len(found))
                found = [*(line.message for line in last), *found]
        return "\n".join(found)

    def cancel(self, handle: ReplicaHandle) -> None:
        """Stop the replica's run, or its continuation, with all replicas. A run that has ended stays as it is.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        self._muster.run(run_of(handle)).cancel()

    def collect(self, handles: Sequence[ReplicaHandle], *, timeout: float | None = None) -> list[CollectedResult]:
        """The replicas' results in the order of `handles`, once their runs have ended or `timeout` seconds have passed.

        With `timeout=0` it checks once. A replica that has not ended is `pending` or `running`, without a result.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: AWS cannot be reached or refuses.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ends = {name: self._end(name, deadline) for name in dict.fromkeys(map(run_of, handles))}
        return [result_of(handle.rank, *ends[run_of(handle)]) for handle in handles]

    def _end(self, name: str, deadline: float) -> tuple[RunStatus, Result | None]:
        """The end of the run and its continuations; the status, once `deadline` has passed."""
        while True:
            run, status, _ = latest(self._muster, name)
            if status.state.is_terminal:
                return status, _result(run)
            left = deadline - time.monotonic()
            if left <= 0:
                return status, None
            # If a continuation is about to start, this returns at once.
            with suppress(WaitTimeoutError):
                run.wait(None if left == math.inf else left)
            if status.awaits_continuation:
                time.sleep(min(POLL_SECONDS, left))


def _trainer(entrypoint: str | Callable[..., object], arguments: Fields) -> str:
    module = arguments.get("trainer_module")
    if module:
        return f"{module}:{arguments.get('trainer_fn', 'train')}"
    return entrypoint if isinstance(entrypoint, str) else f"{entrypoint.__module__}:{entrypoint.__qualname__}"


def _replica(status: RunStatus, rank: int) -> ReplicaStatus:
    return next((replica for replica in status.replicas if replica.rank == rank), ReplicaStatus(rank=rank))


def _result(run: Run) -> Result | None:
    try:
        return run.result()
    except NoResultError:
        return None


def _instance_type_of(gpu: str) -> str:
    """The instance type for `gpu`, which may be an instance type itself.

    Raises:
        GpuError: neither a known GPU nor an instance type.
    """
    if gpu.startswith("ml."):
        return gpu
    if gpu not in _TYPES:
        raise GpuError(gpu)
    return _TYPES[gpu]
