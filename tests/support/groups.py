"""Replicas of several processes, as threads over a local directory: each holds a part of the same arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import GroupError, StoppedError
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.parts.cut import Cut
from muster.replica.rounds.exchange import Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import Packing
from tests.support.copied_array import CopiedArray
from tests.support.peers import PATIENT_SECONDS, Faults, FaultyStore, Run, gradient_of, run_all

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

    def open(self, context: RoundContext, index: int, rank: int = 0, attempt: int = 1) -> Rendezvous:
        """Join the rendezvous as process `index` of replica `rank`."""
        made = replace(context, group=InnerGroup(index, self.size, index), board=self.board)
        rendezvous = Rendezvous.open(made, rank, attempt, Metrics())
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


@dataclass
class Process:
    """One process of a replica that trains."""

    outcomes: list[Outcome] = field(default_factory=list)
    parameters: Floats | None = None
    held: tuple[Cut, Floats, Floats] | None = None
    error: BaseException | None = None


@dataclass
class Group:
    """The processes of one replica that trains."""

    processes: list[Process]
    threads: list[threading.Thread]

    def join(self) -> Group:
        for thread in self.threads:
            thread.join(2 * PATIENT_SECONDS)
            assert not thread.is_alive(), "a process hangs"
        return self

    def state(self) -> tuple[bytes, bytes]:
        """The replica's parameters and momentum, put together."""
        assert not any(process.error for process in self.join().processes)
        found = [process.held for process in self.processes if process.held is not None]
        whole = np.full((2, found[0][0].count), np.nan, np.float32)
        for cut, *arrays in found:
            for held, local in cut.places():
                for array, values in zip(whole, arrays, strict=True):
                    array[held] = values[local]
        for process in self.processes:
            assert process.parameters is not None
            assert process.parameters.tobytes() == whole[0].tobytes()
        return whole[0].tobytes(), whole[1].tobytes()


def states(groups: Sequence[Group]) -> set[tuple[bytes, bytes]]:
    """The states of all replicas; raises the first error of a process that is not another one's consequence."""
    processes = [process for group in groups for process in group.join().processes]
    errors = [process.error for process in processes if process.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, GroupError | StoppedError)):
        raise error
    return {group.state() for group in groups}


def start_group(
    run: Run,
    rank: int,
    size: int,
    algorithm: Algorithm | None = None,
    *,
    attempt: int = 1,
    halt: threading.Event | None = None,
    faults: Callable[[int], Faults] = lambda _: Faults(),
    gradient: Callable[[int, int, int], Floats] = gradient_of,
) -> Group:
    """A replica of `size` processes that trains to the run's last round. `halt` stops it; it is set by its errors."""
    group, halt = ThreadGroup(size), halt or threading.Event()
    algorithm = Algorithm(codec=run.codec) if algorithm is None else algorithm
    processes = [Process() for _ in range(size)]

    def train(index: int) -> None:
        process = processes[index]
        rendezvous = group.open(run.context(FaultyStore(run.store, faults(index)), halt), index, rank, attempt)
        parameters = np.zeros(run.count, np.float32)
        packing = CopiedArray(parameters, group.link(index))
        outer = group.trainer(rendezvous, packing, algorithm)
        step = outer.round * algorithm.interval
        while outer.round < run.rounds:
            step += 1
            parameters -= gradient(rank, step, run.count)
            outcome = outer.step((rank + 1) / size)
            if outcome is not None:
                process.outcomes.append(outcome)
        outer.finish()
        assert rendezvous.training is not None
        state = rendezvous.training.state
        process.parameters = parameters
        process.held = packing.cut, state.parameters, state.momentum

    def work(index: int) -> None:
        try:
            train(index)
        except BaseException as error:
            processes[index].error = error
            halt.set()
            raise

    threads = group.threads(work)
    for thread in threads:
        thread.start()
    return Group(processes, threads)
