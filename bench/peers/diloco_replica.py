"""A replica that trains by DiLoCo: `python -m bench.peers.diloco_replica SYSTEM RANK REPLICAS MIB TENSORS WHERE`.

SYSTEM is `muster`, over the store of the environment (WHERE is an S3 URI), or `torchft`, over its own manager and
ProcessGroupGloo (WHERE is the lighthouse). For each line of standard input it makes an inner step and the exchange with
the others that follows it, and answers with what that took (see `bench/usage.py`) and a digest of its parameters.

Both have the same model, gradients, inner and outer optimizer. Nothing else is in the time: the gradients are there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
import torchft.manager
from torch._C._distributed_c10d import TCPStore
from torchft.checkpointing import CheckpointTransport
from torchft.coordination import ManagerServer
from torchft.local_sgd import DiLoCo as TorchftDiLoCo
from torchft.process_group import ProcessGroupGloo

from bench.rounds.schemes import Place, joined
from bench.usage import Usage, answer_lines, used
from muster.contract.layout import split_s3_uri
from muster.replica.store.s3_store import S3ObjectStore
from muster.torch import Algorithm, DiLoCo

_MIB = 2**20
_LOOPBACK = "127.0.0.1"
_TIMEOUT = timedelta(seconds=120)
_GRACE_SECONDS = _TIMEOUT.total_seconds()
_INNER_RATE, _OUTER_RATE, _MOMENTUM = 1e-3, 0.7, 0.9
Step = Callable[[], object]


class _NoCheckpoints(CheckpointTransport[Any]):
    """No replica ever needs another one's state here. torchft's own transport would listen on every interface."""

    def metadata(self) -> str:
        """None."""
        return ""

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: Any, timeout: timedelta) -> None:
        """Not asked for: no replica is behind."""
        raise NotImplementedError

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """Not asked for, as above."""
        raise NotImplementedError


@dataclass(frozen=True)
class Replica:
    """A replica's place in its group, and what it trains."""

    rank: int
    replicas: int
    model: torch.nn.Module
    inner: torch.optim.Optimizer
    where: str


def main(step_of: Callable[[Replica, ExitStack], Step], replica: Replica) -> None:
    """Train until standard input ends."""
    generator = torch.Generator().manual_seed(replica.rank)
    gradients = [torch.randn(parameter.shape, generator=generator) for parameter in replica.model.parameters()]
    with ExitStack() as stack:
        step = step_of(replica, stack)

        def turn(_: int) -> dict[str, Usage | str]:
            # Again in each turn: torchft puts the mean in the place of the gradients.
            for parameter, gradient in zip(replica.model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            return {"sync": used(step), "digest": _digest(replica.model)}

        answer_lines(turn)
    os._exit(0)  # torchft leaves threads behind that do not end


def _muster(replica: Replica, _: ExitStack) -> Step:
    place = Place(S3ObjectStore(*split_s3_uri(replica.where)), replica.rank, replica.replicas, _GRACE_SECONDS)
    algorithm = Algorithm(sync_every=1, learning_rate=_OUTER_RATE, momentum=_MOMENTUM)
    outer = DiLoCo(joined(place), replica.model, replica.inner, algorithm)

    def step() -> None:
        replica.inner.step()
        outer.step()

    return step


def _torchft(replica: Replica, stack: ExitStack) -> Step:
    """torchft's DiLoCo: its hooks on the inner optimizer make the exchange."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    stack.enter_context(patch.object(socket, "gethostname", return_value=_LOOPBACK))
    group = ProcessGroupGloo(timeout=_TIMEOUT)
    group._rendezvous_store = _loopback_store()
    with patch.object(torchft.manager, "ManagerServer", _loopback_server):
        manager = torchft.manager.Manager(
            pg=group,
            load_state_dict=None,
            state_dict=None,
            min_replica_size=replica.replicas,
            use_async_quorum=False,
            timeout=_TIMEOUT,
            quorum_timeout=_TIMEOUT,
            rank=0,
            world_size=1,
            store_addr=_LOOPBACK,
            store_port=(store := _loopback_store()).port,
            lighthouse_addr=replica.where,
            replica_id=f"replica{replica.rank}",
            hostname=_LOOPBACK,
            checkpoint_transport=_NoCheckpoints(),
            init_sync=False,
        )
    parameters = replica.model.parameters()
    outer = torch.optim.SGD(parameters, lr=_OUTER_RATE, momentum=_MOMENTUM, nesterov=True)
    stack.enter_context(TorchftDiLoCo(manager, [replica.model], replica.inner, outer, sync_every=1))
    stack.callback(lambda: store)  # it lives as long as the manager

    def step() -> None:
        before = manager.current_step()
        replica.inner.step()
        assert manager.current_step() == before + 1, "torchft did not commit"
        assert manager.num_participants() == replica.replicas

    return step


def _loopback_store() -> TCPStore:
    """One that listens on loopback alone; by itself it listens on every interface."""
    listener = socket.create_server((_LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(_LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _loopback_server(**options: Any) -> ManagerServer:
    """As above."""
    return ManagerServer(**options | {"bind": f"{_LOOPBACK}:0"})


def _digest(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().data)
    return digest.hexdigest()


_SYSTEMS = {"muster": _muster, "torchft": _torchft}

if __name__ == "__main__":
    _rank, _replicas, _mib, _tensors = map(int, sys.argv[2:6])
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    _model = torch.nn.ParameterList(
        torch.nn.Parameter(torch.ones(_mib * _MIB // 4 // _tensors)) for _ in range(_tensors)
    )
    _inner = torch.optim.SGD(_model.parameters(), lr=_INNER_RATE)
    main(_SYSTEMS[sys.argv[1]], Replica(_rank, _replicas, _model, _inner, sys.argv[6]))
