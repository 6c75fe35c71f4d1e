"""The replica's code on virtual time: its store, its threads and its clocks are those of the exploration meanwhile."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from muster.replica.rounds import background, reduction, retention, round_context, snapshots, weighted_mean
from muster.replica.store import missing_objects, s3_store
from muster.replica.store.checkpoints import KEPT
from muster.replica.wire import blocks
from tests.exploration.activities import Beside, Makers, current, settle_all
from tests.exploration.simulated_s3 import OBSTORE, Wire
from tests.exploration.world import Setting

# Until they are collected. The cycles of a world are small; Python's default would take a tenth of the time.
GARBAGE_OBJECTS = 50_000

_EVENT = re.compile(r"event=([a-z-]+)")


def _sleep(seconds: float) -> None:
    activity = current()
    activity.pause("sleep", activity.process.world.seconds + seconds)


def _monotonic() -> float:
    return current().process.monotonic()


class Folder:
    """`Checkpoints` in the memory of the world, where a rank's next process finds them."""

    def __init__(self, folder: Path, kind: str, every: int, kept: int = KEPT) -> None:
        self._states = current().process.world.folders.setdefault(f"{folder}/{kind}", {})
        self._every, self._kept = every, kept
        self._first: int | None = None

    def is_due(self, round_: int, *, is_small: bool) -> bool:
        self._first = round_ if self._first is None else self._first
        return is_small or round_ == self._first or round_ % self._every == 0

    def discard(self) -> None:
        self._states.clear()

    def save(self, round_: int, state: bytes | memoryview) -> None:
        earlier = sorted((kept for kept in self._states if kept < round_), reverse=True)[: self._kept - 1]
        self._keep(lambda kept: kept in earlier)
        self._states[round_] = bytes(state)

    def load(self, last_round: int) -> tuple[int, bytes] | None:
        self._keep(lambda kept: kept <= last_round)
        newest = max(self._states, default=None)
        return None if newest is None else (newest, self._states[newest])

    def _keep(self, is_kept: Callable[[int], bool]) -> None:
        for round_ in [round_ for round_ in self._states if not is_kept(round_)]:
            del self._states[round_]


_swept = retention.Keeper._sweep


def _sweep(keeper: retention.Keeper, limit: int, places: range) -> None:
    """The sweep, and a look at what it has left."""
    world = current().process.world
    before = list(world.store.objects)
    _swept(keeper, limit, places)
    world.saw_sweep(limit, places, before)


class _Observer(logging.Handler):
    """Counts what the processes log, for their world."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, str] = {}

    def handle(self, record: logging.LogRecord) -> bool:
        activity = current()
        name = self._names.get(record.msg)
        if name is None:
            found = _EVENT.search(record.msg)
            name = self._names[record.msg] = f"logged: {found[1] if found else record.msg}"
        activity.process.world.seen[name] += 1
        return True


@contextmanager
def simulated() -> Iterator[None]:
    """Models of a few blocks have as many shards as large ones; what is logged is counted."""
    log = logging.getLogger("muster.replica")
    observer = _Observer()
    replaced = [
        (blocks, "BLOCK_ELEMENTS_MIN", 1),
        (blocks, "SHARD_BYTES_MIN", 1),
        (snapshots, "SHARD_BYTES_MAX", 2048),
        (s3_store, "obstore", OBSTORE),
        (s3_store, "_client", lambda _: Wire(current().process)),
        (s3_store, "time", SimpleNamespace(sleep=_sleep)),
        (s3_store, "random", SimpleNamespace(uniform=lambda _, longest: longest)),
        (missing_objects, "obstore", OBSTORE),
        (missing_objects, "TRUST_SECONDS", 1.0),
        (missing_objects, "time", SimpleNamespace(monotonic=_monotonic)),
        (round_context, "wait", settle_all),
        (reduction, "ThreadPoolExecutor", Makers),
        (background, "_Work", Beside),
        (round_context, "Checkpoints", Folder),
        (retention.Keeper, "_sweep", _sweep),
        (logging, "_srcfile", None),  # no look for the caller of each log line
    ]
    thresholds = gc.get_threshold()
    handlers, level, propagates = log.handlers, log.level, log.propagate
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        log.handlers, log.propagate = [observer], False
        log.setLevel(logging.INFO)
        gc.set_threshold(GARBAGE_OBJECTS)
        try:
            yield
        finally:
            gc.set_threshold(*thresholds)
            log.handlers, log.propagate = handlers, propagates
            log.setLevel(level)


@contextmanager
def scaled(setting: Setting) -> Iterator[None]:
    """The product's sizes as one schedule wants them."""
    with (
        patch.object(blocks, "SHARD_BYTES_AIM", setting.shard_bytes),
        patch.object(weighted_mean, "CONNECTIONS", max(2, setting.connections)),
    ):
        yield
