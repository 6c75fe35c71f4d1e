"""What a trainer is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event

from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous


@dataclass(frozen=True)
class Context:
    """The first argument of `package.module:function`."""

    run: str
    rank: int
    world_size: int
    attempt: int
    incarnation: int
    rendezvous: Rendezvous
    metrics: Metrics
    # Set when SageMaker asks the container to stop (SIGTERM; 120 s are left then): return at the next safe point.
    stop: Event
    input_dir: Path  # input/data: one folder per channel
    checkpoint_dir: Path  # synced to S3, and restored when the replica comes back
    output_dir: Path  # packed into output.tar.gz
    model_dir: Path  # packed into model.tar.gz
