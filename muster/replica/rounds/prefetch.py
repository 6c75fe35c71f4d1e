"""Reads what this process will load when it joins: the newest snapshot, and the reduced rounds after it.

It begins as soon as the rendezvous is known, so that the bytes arrive while the user's code is imported, and ends when
the state is loaded. What it reads is chosen by the functions that choose what is loaded (`newest_snapshot`,
`read_commit`, and the ranges of a snapshot and of a round). What it has read lies by key in `ReadAhead`: the recovery
looks, chooses, reads and checks as if there were no prefetch, and finds the bytes there if they are those it wants. So
nothing that was read ahead is used unless the run needs it now, and no failure here is a failure of the process.

Each process of a group reads what it will hold, so no byte is read twice on an instance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from muster.replica.codecs import codec_named
from muster.replica.parts.cut import Cut
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds.commit_store import read_commit
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.round_history import newest_snapshot
from muster.replica.rounds.round_mean import ranges_read
from muster.replica.rounds.run_options import stored_options
from muster.replica.rounds.snapshots import Snapshots, read_manifest, rounds_with_snapshots
from muster.replica.store.read_ahead import ByteRange, ReadAhead
from muster.replica.wire.headers import SnapshotManifest

# A trainer that still has not joined is left to itself: what was read by then is mostly out of date.
FOLLOW_SECONDS = 600.0
# Each look is a request that is paid for, and a round takes longer.
LOOK_SECONDS = 1.0
# Of what is free beside the state itself: the trainer needs the rest for its model and its data.
SHARE = 0.5
_UNKNOWN_BYTES = 2**30
# Of each element: its parameter, its momentum, its mean, and its place in the trainer's own model.
_STATE_BYTES = 4 * 4
_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")


class Prefetch:
    """Fills `ahead`, that of `context`, in a thread of its own."""

    def __init__(self, context: RoundContext, ahead: ReadAhead, beside: int = 1) -> None:
        """`beside`: how many processes of the replica this instance has."""
        self._ahead, self._beside = ahead, beside
        self._over = Event()
        self._context = context
        # Not a daemon: one that comes back from a request while the interpreter ends would abort the process.
        self._thread = Thread(target=self._run, name="read-ahead-finder")

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End, and free what has not been asked for; later calls do nothing."""
        self._over.set()
        self._ahead.close()

    def _run(self) -> None:
        try:
            self._follow()
        except StoppedError:
            return
        except Exception as error:
            # The recovery reads for itself, and reports what fails then.
            log.info("event=prefetch-ended reason=%r", str(error))
            self._ahead.drop()

    def _follow(self) -> None:
        options = stored_options(self._context)
        if options is None or "codec" not in options.settings:
            # No process has joined yet, or the algorithm is not Muster's own, and has no snapshots.
            return
        codec, fragments = codec_named(str(options.settings["codec"])), int(options.settings.get("fragments", 1))
        context = replace(self._context, codec=codec, fragments=fragments)
        until = context.clock.monotonic() + FOLLOW_SECONDS
        while True:
            found = newest_snapshot(context, lambda manifest: self._snapshot(context, manifest))
            if found is None or not self._rounds_after(found, context, until):
                return
            log.info("round=%d event=prefetch-superseded", found.round)
            self._ahead.drop()

    def _snapshot(self, context: RoundContext, manifest: SnapshotManifest) -> SnapshotManifest:
        group = context.group
        cut = Cut(manifest.count, context.codec, context.fragments, group.rank, group.size, manifest.exact)
        self._ahead.allow(room(cut.length, self._beside))
        ranges = Snapshots(context, cut, manifest.layout).ranges(manifest)
        log.info("round=%d event=prefetch mib=%d", manifest.round, sum(map(_size, ranges)) >> 20)
        self._fetch(ranges)
        return manifest

    def _rounds_after(self, base: SnapshotManifest, context: RoundContext, until: float) -> bool:
        """Read the rounds after `base`, those that are committed meanwhile, too; whether a newer snapshot is there."""
        round_, group, is_first_pause = base.round, context.group, True
        newest: list[ByteRange] = []
        while True:
            # Again: a round is committed before its shards are there.
            self._fetch(newest)
            newer = rounds_with_snapshots(context, round_ - 1, base.round)
            if not self._ahead.in_use and any(read_manifest(context, later) is not None for later in newer):
                return True
            commit = read_commit(context, round_ + 1)
            if commit is None:
                if is_first_pause:
                    is_first_pause = False
                    self._ahead.settle()
                    log.info("round=%d event=prefetched from=%d", round_, base.round)
                if context.clock.monotonic() >= until or context.clock.wait(self._over, LOOK_SECONDS):
                    return False
                continue
            round_ += 1
            self._fetch(newest)
            # Over several places the means have other bytes, and each place has copies of them.
            is_read = not commit.void and context.places is None
            newest = list(ranges_read(context, commit, group.rank, group.size)) if is_read else []

    def _fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Begin to read them, as room becomes free.

        Raises:
            StoppedError: there is none for a range, or this has been closed.
        """
        for wanted in ranges:
            if not self._ahead.fetch(wanted):
                raise StoppedError


def _size(wanted: ByteRange) -> int:
    return wanted.stop - wanted.start


def room(elements: int, beside: int = 1, machine: Path = _MACHINE, container: Path = _CONTAINER) -> int:
    """How many bytes one of the `beside` processes of an instance may hold that will load a state.

    Args:
        elements: of the state that it will hold itself.
        beside: the processes of the instance that do the same.
        machine: where the system says how much memory it has.
        container: where the limit of the container lies (cgroup v2), if there is one.
    """
    free = [found for found in (_of_machine(machine), _of_container(container)) if found is not None]
    each = min(free, default=_UNKNOWN_BYTES) // beside
    return max(0, int((each - _STATE_BYTES * elements) * SHARE))


def _of_machine(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _of_container(folder: Path) -> int | None:
    """What the container may still take. The files that the system has cached for it count as taken."""
    try:
        limit, taken = ((folder / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return int(limit) - int(taken)
    except (OSError, ValueError):
        # There is none, or it is "max".
        return None
