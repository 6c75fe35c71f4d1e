"""States in the memory of a HyperPod cluster's nodes: managed tiered checkpointing, by AWS's client for it.

The client of `amzn-sagemaker-checkpointing` (1.1.3) stores bytes by namespace, rank and step. Only this client is used.
The library's writer and reader for torch.distributed.checkpoint pickle their metadata, and load what they find; they
look for the newest state in S3 so that step 0 is never found, and delete nothing there. The states here are Muster's
own: with a checksum, without pickle, and in S3 in a tier of their own.

The service is one for the whole cluster, and any pod of it can reach it. So a namespace has the digest of the
rendezvous in its name, and what is read is checked as everywhere.
"""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from muster.contract.document import digest
from muster.options.tiers.replica.state_file import Owner
from muster.options.tiers.replica.tier import Held, Tier, TierError, TierName
from muster.replica.frontends.phase_states import StateId
from muster.replica.rounds.round_context import log
from muster.replica.states.state_buffer import Bytes

if TYPE_CHECKING:
    from amzn_sagemaker_checkpointing.storage.clients.inmemory.inmemory_client import InMemoryCheckpointClient

ENV_ENDPOINT = "MUSTER_MEMORY_ENDPOINT"
"""The service's URL where it is not the one that the library knows."""
_ENV_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"  # Kubernetes sets it in every container

KEPT = 3
PROBE_SECONDS = 3.0
REQUEST_SECONDS = 10.0  # without a byte; the library's own limit is 60
BYTES_PER_SECOND = 50e6  # far below what the memory of another node gives: slower than this is no fast tier
PAUSE_SECONDS = 60.0  # after a failure, in which the disk is used

T = TypeVar("T")


class MemoryTier(Tier):
    """Survives the pod, and the node where the service keeps copies on others."""

    name = TierName.MEMORY

    def __init__(self, client: InMemoryCheckpointClient, interval: int) -> None:
        """`interval`: inner steps of a round; a state is stored as that of the run's inner step."""
        self._client = client
        self._interval = interval
        self._part = client.rank
        self._is_prepared = False
        self._paused_until = 0.0

    @classmethod
    def of(cls, owner: Owner, interval: int, variables: Mapping[str, str] = os.environ) -> MemoryTier | None:
        """The tier where the image has AWS's library and the cluster the service; None elsewhere."""
        endpoint = variables.get(ENV_ENDPOINT)
        if not endpoint and _ENV_IN_CLUSTER not in variables:
            return None
        try:
            from amzn_sagemaker_checkpointing.config.in_memory_client import InMemoryClientConfig  # noqa: PLC0415
            from amzn_sagemaker_checkpointing.storage.clients.inmemory.inmemory_client import (  # noqa: PLC0415
                InMemoryCheckpointClient,
            )
        except ImportError as error:
            log.info("event=no-memory-tier reason='amzn-sagemaker-checkpointing: %s'", error)
            return None
        config = InMemoryClientConfig(request_timeout=REQUEST_SECONDS)
        if endpoint:
            config.base_url = endpoint
        # It logs every failure as an error; those are ours to report.
        quiet = logging.getLogger("muster.replica.memory-tier")
        quiet.setLevel(logging.CRITICAL + 1)
        client = InMemoryCheckpointClient(
            _namespace(owner), str(owner.part), str(owner.parts), config, steps_retained=KEPT, logger=quiet
        )
        tier = cls(client, interval)
        try:
            tier._prepare(PROBE_SECONDS)
        except TierError as error:
            log.info("event=no-memory-tier endpoint=%s reason=%r", config.base_url, str(error))
            return None
        return tier

    @property
    def is_paused(self) -> bool:
        """Whether it has just failed, or was slow: states go to the disk meanwhile."""
        return time.monotonic() < self._paused_until

    def held(self) -> list[Held]:
        """The service lists the states of all processes of the namespace: some may not be of this one."""
        # The library answers with an empty list if the service fails.
        steps = self._try(lambda: self._client.get_latest_checkpoints(limit=2 * KEPT))
        return [Held(StateId(*divmod(step, self._interval))) for step in steps if step >= 0]

    def read(self, held: Held) -> Bytes:
        """See `Tier`."""
        body = self._try(lambda: self._client.get_checkpoint(self._step(held), rank=self._part))
        if body is None:
            message = f"step {self._step(held)} of process {self._part} is not there"
            raise TierError(message)
        return body

    def write(self, held: Held, body: memoryview) -> None:
        """The service deletes all but the newest `KEPT` states."""
        began = time.monotonic()
        try:
            self._prepare(REQUEST_SECONDS)
            self._try(
                lambda: self._client.put_checkpoint(self._step(held), cast("BinaryIO", _Reading(body)), rank=self._part)
            )
        except TierError:
            self._is_prepared = False  # the service may have been started anew, and know no namespaces
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise
        seconds = time.monotonic() - began
        if seconds > REQUEST_SECONDS + len(body) / BYTES_PER_SECOND:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            log.warning("event=slow-memory-tier bytes=%d seconds=%.1f", len(body), seconds)

    def clear(self) -> None:
        """Delete the namespace, with the states of all processes of the replica: the training is over for all."""
        if self._part == 0:
            self._try(self._client.delete_namespace)

    def _prepare(self, seconds: float) -> None:
        if self._is_prepared:
            return
        began = time.monotonic()
        try:
            self._try(lambda: self._client.get_or_create_namespace(timeout=seconds))
        except TierError:
            if time.monotonic() - began > seconds:
                raise
            # Another process may have created it meanwhile.
            self._try(lambda: self._client.get_or_create_namespace(timeout=seconds))
        self._is_prepared = True

    def _step(self, held: Held) -> int:
        return held.id.round * self._interval + held.id.step

    @staticmethod
    def _try(call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            # The library's own errors, and whatever it makes of answers that are none.
            cause = error.__cause__ or error
            message = f"{type(error).__name__}: {str(cause)[:300]}"
            raise TierError(message) from None


class _Reading(io.RawIOBase):
    """A buffer as a file that is read, without a copy of it. The library hashes it first, and sends it then."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def __len__(self) -> int:
        return len(self._body)

    def read(self, size: int | None = -1) -> bytes:
        stop = len(self._body) if size is None or size < 0 else self._at + size
        piece = bytes(self._body[self._at : stop])
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, len(self._body))[whence]
        return self._at


def _namespace(owner: Owner) -> str:
    """Names the states of one replica in the cluster: another group of processes has states of its own."""
    return f"muster-{owner.run}-{digest(owner.rendezvous)[:8]}-r{owner.rank}-p{owner.parts}"
