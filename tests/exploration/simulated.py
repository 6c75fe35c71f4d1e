"""The replica's code on virtual time: its store, its threads and its clocks are those of the exploration meanwhile."""

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from muster.replica import free_memory, rendezvous
from muster.replica.rounds import (
    agreement,
    all_gather,
    background,
    quorum,
    reduction,
    retention,
    round_context,
    snapshots,
    weighted_mean,
)
from muster.replica.store import missing_objects, pace, s3_store
from muster.replica.store.checkpoints import Checkpoints, Contributor, State, kept_beside, usable
from muster.replica.wire import blocks
from tests.exploration.activities import Beside, Makers, Turns, current, settle_all
from tests.exploration.simulated_s3 import OBSTORE, Wire
from tests.exploration.world import Setting
from tests.support.exploring import rarely_collected

_EVENT = re.compile(r"event=([a-z-]+)")


def _sleep(seconds: float) -> None:
    activity = current()
    activity.pause("sleep", activity.process.world.seconds + seconds)


def _monotonic() -> float:
    return current().process.monotonic()


class Folder:
    """`Checkpoints` in the memory of the world, where a rank's next process finds them."""

    def __init__(self, folder: Path, kind: str, every: int, kept: int, contributor: Contributor) -> None:
        self._states = current().process.world.folders.setdefault(f"{folder}/{kind}", {})
        self._every, self._kept, self._contributor = every, kept, contributor
        self._first: int | None = None

    def is_due(self, round_: int, *, is_small: bool) -> bool:
        self._first = round_ if self._first is None else self._first
        return is_small or round_ == self._first or round_ % self._every == 0

    def discard(self) -> None:
        self._states.clear()

    def save(self, round_: int, state: bytes | memoryview) -> None:
        self.adopt((round_, self._contributor.epoch), state)

    def adopt(self, saved: State, state: bytes | memoryview) -> None:
        kept = kept_beside(self._states, saved, self._kept - 1, self._contributor.counted(saved[0] - 1))
        for other in self._states.keys() - kept:
            del self._states[other]
        self._states[saved] = bytes(state)

    def load(self, last_round: int, epoch: int | None = None) -> tuple[int, bytes] | None:
        counted = self._contributor.counted(last_round) if epoch is None else epoch
        found = usable(self._states, last_round, counted)
        return (found[0][0], self._states[found[0]]) if found else None

    def of_last_counted(self, round_: int) -> bytes | None:
        return Checkpoints.of_last_counted(self, round_)  # type: ignore[arg-type]


_swept = retention.Keeper._sweep


@wraps(_swept)
def _sweep(keeper: retention.Keeper, limit: int, places: range) -> None:
    """The sweep, and a look at what it has left."""
    world = current().process.world
    before = list(world.store.objects)
    _swept(keeper, limit, places)
    world.saw_sweep(limit, places, before)


_decided = quorum.QuorumTally.decide


@wraps(_decided)
def _decide(tally: quorum.QuorumTally, now: float, *, timed_out: bool = False) -> quorum.QuorumDecision:
    """The decision, and whether it comes too early or too late for the contributions that the process has seen."""
    decision = _decided(tally, now, timed_out=timed_out)
    if tally._quorum.share is None:
        return decision
    present, world = len(tally.members), current().process.world
    if present < tally.needed:
        tally.__dict__.pop("explored_since", None)
        return decision
    waited = now - tally.__dict__.setdefault("explored_since", now)
    patience = tally._patience_seconds
    if decision is quorum.QuorumDecision.WAIT and waited > patience + tally.grace_seconds + 1e-6:
        world.breaks(f"{current().process.name} has waited {waited:g} s for others")
    if decision is quorum.QuorumDecision.COMMIT and tally.absent and not timed_out:
        world.seen["a round is committed without its share"] += present < tally.wanted
        if present < tally.wanted and waited < max(patience, world.setting.grace_seconds) - 1e-6:
            world.breaks(f"{current().process.name} has not waited for the share of the expected")
    return decision


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
        (s3_store, "_client", lambda bucket, **_: Wire(current().process, bucket)),
        (s3_store, "time", SimpleNamespace(sleep=_sleep, monotonic=_monotonic)),
        (pace, "Condition", Turns),
        (s3_store, "random", SimpleNamespace(uniform=lambda _, longest: longest)),
        (missing_objects, "obstore", OBSTORE),
        (missing_objects, "TRUST_SECONDS", 1.0),
        (missing_objects, "time", SimpleNamespace(monotonic=_monotonic)),
        (round_context, "wait", settle_all),
        (reduction, "ThreadPoolExecutor", Makers),
        (background, "_Work", Beside),
        (rendezvous, "Checkpoints", Folder),
        (free_memory, "_trim", lambda: None),
        (retention.Keeper, "_sweep", _sweep),
        (quorum.QuorumTally, "decide", _decide),
        (logging, "_srcfile", None),  # no look for the caller of each log line
    ]
    handlers, level, propagates = log.handlers, log.level, log.propagate
    with ExitStack() as stack:
        stack.enter_context(rarely_collected())
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        log.handlers, log.propagate = [observer], False
        log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.handlers, log.propagate = handlers, propagates
            log.setLevel(level)


@contextmanager
def scaled(setting: Setting) -> Iterator[None]:
    """The product's sizes as one schedule wants them."""
    border = setting.gathers
    with (
        patch.object(
            agreement, "gathers", all_gather.gathers if border is None else lambda _, members: members <= border
        ),
        patch.object(blocks, "SHARD_BYTES_AIM", setting.shard_bytes),
        patch.object(weighted_mean, "CONNECTIONS", max(2, setting.connections)),
        patch.object(reduction, "CONNECTIONS", max(2, setting.connections)),
    ):
        yield
