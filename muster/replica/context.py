"""What Muster gives a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from muster.options import offers
from muster.replica.group.board import InnerGroup
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError
from muster.replica.statistics.metrics import Metrics

T = TypeVar("T")


class Shards(Protocol):
    """The run's data set, in shards that are numbered from 0. Every item of it is trained once an epoch.

        shards = context.shards(total=64, epochs=3)
        outer = DiLoCo(context.rendezvous, model, optimizer, Algorithm(sync_every=500))
        for batch in shards.loader(dataset, batch_size=32, num_workers=4):
            train_one_step(model, optimizer, batch)
            outer.step(samples=len(batch))
        outer.finish()

    The rounds say what was trained. After each, this replica goes on with what is left, wherever others have joined,
    left or failed; what it has trained in a round that did not count is trained again, perhaps by another replica. The
    loop ends on all replicas after the same round, once all epochs have counted, or when the trainer should return.
    Towards the end some replicas train what another one trains as well: one of the two counts.

    A step trains all that the loop has yielded before it. One loop reads at a time; the next one goes on where it was
    left. Where the shards of a replica are used up, its round ends between two steps. In a replica of several processes
    each gets its part of every batch. torchft's algorithms do not say what they have trained: use them without shards.
    """

    total: int
    """The number of shards. Choose some for each replica, so that no replica is without; a round ends early after 24 of
    one replica."""

    @property
    def epoch(self) -> int:
        """The epoch of the first shard that has not counted, from 0."""

    @property
    def done(self) -> int:
        """How many shards of this epoch have counted."""

    def items(self, load: Callable[[int], Iterable[T]]) -> Iterator[T]:
        """The items of the shards.

        Args:
            load: what a shard has: a list, or anything that can be iterated over; the same items whenever it is called.
        """

    def batches(self, load: Callable[[int], Iterable[T]], batch_size: int, *, ahead: int = 0) -> Iterator[list[T]]:
        """Lists of so many items, for each process; a thread reads `ahead` items ahead. `load`: as in `items`."""

    def arrays(
        self, *arrays: NDArray[Any], batch_size: int, shuffle: bool = True
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """Batches of arrays whose first axis is the examples'; each shard has every `total`-th of them.

        Args:
            shuffle: whether a shard's examples have another order in every epoch, as the shards have in any case.
        """

    def loader(self, dataset: Any, *, batch_size: int, shuffle: bool = True, **options: Any) -> Iterator[Any]:
        """Batches of PyTorch's DataLoader of a data set with a length, such as Hugging Face's; see `arrays`.

        Args:
            options: the DataLoader's, such as `num_workers`. What workers have read ahead counts when it is yielded.
        """

    def stream(
        self,
        load: Callable[[int], Iterable[Any]],
        *,
        batch_size: int,
        ahead: int = 64,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> Iterator[Any]:
        """Batches of what can only be read in order, such as tar files in S3; see `batches`.

        Every process of a replica reads all of a shard, and keeps its share.

        Args:
            collate: makes a batch of a list of items; PyTorch's own by default.
        """


@dataclass(frozen=True)
class OffersShards:
    """What divides a data set among replicas: the seam `replica.shards`."""

    of: Callable[[Context, int, int | None, int, tuple[int, int] | None], Shards]


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

    def shards(
        self, total: int, *, epochs: int | None = None, seed: int = 0, part: tuple[int, int] | None = None
    ) -> Shards:
        """Divide the data set of the run among its replicas, which may join, leave and fail.

        Args:
            total: into how many shards it is divided, the same on all replicas and in all continuations.
            epochs: how often it is trained; None: without end.
            seed: of the order of shards and examples, the same on all replicas.
            part: which part of every batch this process has, and of how many; by default there is one for each process
                of the replica. With tensor parallelism the processes that share a batch name the same part.

        Raises:
            ParametersError: a number that is not allowed, another one than the run's, or it was called before.
        """
        for offer in offers("replica.shards", OffersShards):
            return offer.of(self, total, epochs, seed, part)
        message = "context.shards is not part of this installation of Muster."
        raise ParametersError(message)

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
