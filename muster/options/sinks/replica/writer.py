"""Writes metrics beside the training loop, which never waits for them: a sink may be slow, or fail.

Every sink has a thread and a bounded queue of its own. What does not fit into the queue, or fails to be written, is
lost. The first loss and the sum of all are logged.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.replica.statistics.metrics import LISTENING, Ending

log = logging.getLogger("muster.replica")

RECORDS_MAX = 10_000
"""How many records wait for one sink: of a few hundred bytes each."""
CLOSE_SECONDS = 10.0
"""How long the end of the process waits for the sinks: SageMaker kills a stopped job 120 seconds after its warning."""


@dataclass(frozen=True)
class Identity:
    """One replica of a lineage: its metrics have the same names in every rerun and every continuation.

    Attributes:
        run: the first run of the lineage.
        rendezvous: the URI of its rendezvous, which no other lineage has.
    """

    run: str
    rank: int
    rendezvous: str

    @property
    def name(self) -> str:
        """`digits-7-r3`."""
        return f"{self.run}-r{self.rank}"

    @property
    def unique_name(self) -> str:
        """The name with a digest, for services where runs of several stacks meet: `digits-7-r3-5f0c92ab`."""
        return f"{self.name}-{hashlib.sha256(self.rendezvous.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Record:
    """What was logged at once.

    Attributes:
        step: the run's inner step, or its round where a front end knows no steps.
        at: seconds since 1970.
    """

    step: int
    at: float
    values: Mapping[str, float]


class Sink(Protocol):
    """One place where metrics go. Only its own thread calls it; it connects with the first call of `write`."""

    name: str

    def write(self, records: Sequence[Record]) -> None:
        """Write records, in order. Any error means that these are lost; the next ones are tried again."""

    def close(self, ending: Ending) -> None:
        """Nothing is written any more. Not called if nothing was written."""


class MetricsWriter:
    """All sinks of a replica: a `Listener`."""

    def __init__(self, sinks: Sequence[Sink] = (), records_max: int = RECORDS_MAX) -> None:
        """Starts a thread for each of `sinks`."""
        self._workers = [_Worker(sink, records_max) for sink in sinks]

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over what was logged; returns at once."""
        record = Record(step, time.time(), dict(values))
        for worker in self._workers:
            worker.put(record)

    def close(self, ending: Ending, seconds: float | None = None) -> None:
        """Write what still waits, for at most `seconds` (CLOSE_SECONDS). Later records are ignored."""
        for worker in self._workers:
            worker.end(ending)
        until = time.monotonic() + (CLOSE_SECONDS if seconds is None else seconds)
        for worker in self._workers:
            worker.join(max(0.0, until - time.monotonic()))


class _Worker:
    """The queue and the thread of one sink."""

    def __init__(self, sink: Sink, records_max: int) -> None:
        self._sink = sink
        self._waiting: deque[Record] = deque()
        self._records_max = records_max
        self._changed = threading.Condition()
        self._ending: Ending | None = None
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name=f"{LISTENING}{sink.name}", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        with self._changed:
            if self._ending is not None:
                return
            is_full = len(self._waiting) >= self._records_max
            if not is_full:
                self._waiting.append(record)
                self._changed.notify()
        if is_full:
            self._lose(1, f"{self._records_max:,} records wait for it")

    def end(self, ending: Ending) -> None:
        with self._changed:
            self._ending = ending
            self._changed.notify()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        waiting = len(self._waiting) if self._thread.is_alive() else 0
        if self._lost or waiting:
            log.warning("event=metrics-lost sink=%s records=%d", self._sink.name, self._lost + waiting)

    def _run(self) -> None:
        has_written = False
        while records := self._take():
            try:
                self._sink.write(records)
                has_written = True
            except Exception as error:
                self._lose(len(records), f"{type(error).__name__}: {error}")
        if has_written and self._ending is not None:
            try:
                self._sink.close(self._ending)
            except Exception as error:
                self._lose(0, f"{type(error).__name__}: {error}")

    def _take(self) -> list[Record]:
        """The records that wait; none once no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending is not None)
            records = list(self._waiting)
            self._waiting.clear()
        return records

    def _lose(self, count: int, reason: str) -> None:
        with self._changed:
            is_first, self._lost = not self._lost, self._lost + count
        if is_first:
            log.warning("event=metrics-failing sink=%s reason=%r", self._sink.name, reason)
