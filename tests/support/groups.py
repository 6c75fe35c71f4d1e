"""Replicas of several processes, as threads over a local directory: each holds a part of the same arrays."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.group.board import InnerGroup, LocalBoard
from muster.replica.parts.packing import Packing
from muster.replica.phases.synchronizer import OwnState, Synchronizer
from muster.replica.rendezvous import NOTHING_ELSE, Outside, Rendezvous
from muster.replica.replica_errors import GroupError
from muster.replica.rounds.round_context import RoundContext
from muster.replica.statistics.metrics import Metrics
from muster.replica.wire.binary_format import Floats
from tests.support.copied_array import CopiedArray
from tests.support.peers import PATIENT_SECONDS, run_all

NO_OWN_STATE = OwnState(lambda *_: lambda: None, lambda: None)


class Shared:
    """What the links of one group have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.values: list[Any] = [None] * size


class ThreadLink:
    """The link of one of a group's threads."""

    def __init__(self, shared: Shared, rank: int) -> None:
        self._shared = shared
        self.rank, self.size = rank, shared.size

    def gather(self, value: object) -> list[Any]:
        try:
            self._shared.values[self.rank] = value
            self._shared.barrier.wait(PATIENT_SECONDS)
            values = list(self._shared.values)
            self._shared.barrier.wait(PATIENT_SECONDS)
        except threading.BrokenBarrierError:
            message = "a process of this replica has ended"
            raise GroupError(message) from None
        return values

    def swap(self, sends: Sequence[Floats], counts: Sequence[int]) -> list[Floats]:
        received = [given[self.rank] for given in self.gather([send.copy() for send in sends])]
        assert [values.size for values in received] == list(counts)
        return received


class ThreadGroup:
    """The processes of one replica, each of which does what a test says."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.board = LocalBoard()
        self.shared, self._links = Shared(size), Shared(size)
        self._errors: list[BaseException] = []

    def open(
        self, context: RoundContext, index: int, rank: int = 0, attempt: int = 1, outside: Outside = NOTHING_ELSE
    ) -> Rendezvous:
        """Join the rendezvous as process `index` of replica `rank`."""
        made = replace(context, group=InnerGroup(index, self.size, index), board=self.board)
        rendezvous = Rendezvous.open(made, rank, attempt, Metrics(), outside)
        rendezvous.connect(ThreadLink(self.shared, index))
        return rendezvous

    def link(self, index: int) -> ThreadLink:
        """The link through which the parameters of process `index` move."""
        return ThreadLink(self._links, index)

    def trainer(
        self,
        rendezvous: Rendezvous,
        parameters: Floats | Packing,
        algorithm: Algorithm,
        own: OwnState = NO_OWN_STATE,
        folder: Path | None = None,
    ) -> Synchronizer:
        """What exchanges the parameters of a process."""
        link = self.link(rendezvous.context.group.rank)
        packing = parameters if isinstance(parameters, Packing) else CopiedArray(parameters, link)
        return Synchronizer(rendezvous, packing, algorithm, own, folder)

    def threads(self, work: Callable[[int], None]) -> list[threading.Thread]:
        """A thread for each process; an error in one of them ends the others."""

        def guarded(index: int) -> None:
            try:
                work(index)
            except BaseException as error:
                self._errors.append(error)
                self.shared.barrier.abort()
                self._links.barrier.abort()

        return [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(self.size)]

    def check(self) -> None:
        """Raise the error of a process, if there was any: not one that is another's consequence."""
        for error in sorted(self._errors, key=lambda error: isinstance(error, GroupError)):
            raise error

    def run(self, work: Callable[[int], None]) -> None:
        """Let all processes do this, and wait for them."""
        run_all(self.threads(work))
        self.check()
