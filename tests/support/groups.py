"""Replicas of several processes, as threads over a local directory: each holds a part of the same arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.wire.binary_format import Floats
from tests.support.copied_array import CopiedArray
from tests.support.peers import PATIENT_SECONDS, Faults, FaultyStore, Run, gradient_of


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

    def end(self) -> None:
        """This process ends: the others notice."""
        self._shared.barrier.abort()


@dataclass
class Process:
    """One process of a replica."""

    thread: threading.Thread
    outcomes: list[Outcome] = field(default_factory=list)
    parameters: Floats | None = None
    held: tuple[Cut, Floats, Floats] | None = None
    error: BaseException | None = None


@dataclass
class Group:
    """The processes of one replica."""

    processes: list[Process]

    def join(self) -> Group:
        for process in self.processes:
            process.thread.join(2 * PATIENT_SECONDS)
            assert not process.thread.is_alive(), "a process hangs"
        return self

    def state(self) -> tuple[bytes, bytes]:
        """The replica's parameters and momentum, put together."""
        assert not any(process.error for process in self.join().processes)
        found = [process.held for process in self.processes if process.held is not None]
        count = found[0][0].count
        whole = np.full(count, np.nan, np.float32), np.full(count, np.nan, np.float32)
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
    halt = halt or threading.Event()
    shared, links, board = Shared(size), Shared(size), LocalBoard()
    algorithm = Algorithm(codec=run.codec) if algorithm is None else algorithm

    def work(index: int) -> None:
        process = processes[index]
        link = ThreadLink(shared, index)
        try:
            context = run.context(FaultyStore(run.store, faults(index)), halt)
            context = replace(context, group=InnerGroup(index, size, index), board=board)
            rendezvous = Rendezvous.open(context, rank, attempt, Metrics())
            rendezvous.connect(link)
            parameters = np.zeros(run.count, np.float32)
            packing = CopiedArray(parameters, ThreadLink(links, index))
            outer = Synchronizer(rendezvous, packing, algorithm, OwnState(lambda *_: lambda: None, lambda: None), None)
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
        except BaseException as error:
            process.error = error
            halt.set()
            link.end()
            ThreadLink(links, index).end()

    processes = [
        Process(threading.Thread(target=work, args=(index,), name=f"r{rank}p{index}", daemon=True))
        for index in range(size)
    ]
    for process in processes:
        process.thread.start()
    return Group(processes)
