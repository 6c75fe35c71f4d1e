"""What Muster gives a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event

from muster.replica.group.board import InnerGroup
from muster.replica.rendezvous import Rendezvous
from muster.replica.statistics.metrics import Metrics


@dataclass(frozen=True)
class Context:
    """The first argument of every trainer (`package.module:function`): the replica's place in its run, and its folders.

    Folders exist when the trainer starts, except `input_dir` of a job without input channels.
    """

    run: str
    """The run's name, such as `digits-7`. A continuation has a name of its own."""

    rank: int
    """This replica's rank, from 0 to `world_size - 1`; a rerun keeps it. It selects the replica's part of the data."""

    world_size: int
    """The number of replicas in the run, such as 8. It stays the same when replicas fail. Of an elastic run it is the
    number of seats, `replicas.max`: `members` are those who train."""

    attempt: int
    """The number of this replica's training job: 1 at first, 2 after one rerun. A continuation keeps counting."""

    incarnation: int
    """How often the attempt's container has started, from 1. SageMaker restarts it after a spot interruption."""

    group: InnerGroup
    """This process's place among the processes of its replica; see `processes` and `instance_count` of the spec."""

    rendezvous: Rendezvous
    """The connection to the other replicas: the first argument of `DiLoCo`, `LocalSGD` and the torchft `Manager`."""

    metrics: Metrics
    """Logs metrics to the log and the run's page: `context.metrics.log(loss=0.7)`. At most 31 names."""

    stop: Event
    """Set when the trainer should return: SageMaker stops the job (SIGTERM) and kills the process 120 seconds later, or
    the run has ended because a replica finished early (`on_early_finish: stop`)."""

    input_dir: Path
    """The input data, one folder per channel of `input_data_config`. `/opt/ml/input/data` in a container."""

    checkpoint_dir: Path
    """Synced to S3 while the job runs, and restored when the replica restarts. `/opt/ml/checkpoints` in a container."""

    output_dir: Path
    """Uploaded as output.tar.gz when the job ends. `/opt/ml/output/data` in a container."""

    model_dir: Path
    """Uploaded as model.tar.gz when the job ends. `/opt/ml/model` in a container."""

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that train the model now, ascending: who contributed to the last round and has not said that it
        leaves. A replica that joins is among them after its first round. Before the first round: who begins the run.
        """
        return self.rendezvous.members

    def alive(self) -> None:
        """Report progress during long work between two steps, such as an evaluation: `watch.hang` waits anew."""
        self.rendezvous.statistics.progress.alive()

    def expect(self, *, rounds: int | None = None, unit: str | None = None) -> None:
        """Say how long the training is, and what its samples are: `muster status` and the page then show when it ends.

        Call it on all replicas. A later call changes what it names.

        Args:
            rounds: how many rounds the run makes in all, those before a restart included.
            unit: what `samples` counts, such as `tokens`; `samples` by default.

        Raises:
            ParametersError: a number of rounds or a unit that is not allowed.
        """
        self.rendezvous.statistics.expect(rounds, unit)
