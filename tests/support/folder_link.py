"""The processes of a replica connected by files: for trainers without PyTorch, which takes seconds to import."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.replica.errors import GroupError
from muster.replica.group.inner_group import InnerGroup
from muster.replica.wire.binary_format import Floats

_PAUSE_SECONDS = 0.01


class FolderLink:
    """A link through a folder that is new for the processes of one attempt, for one thread."""

    def __init__(self, folder: Path, group: InnerGroup, stop: threading.Event) -> None:
        """`stop` ends the wait for another process: the launcher ends a group together."""
        folder.mkdir(parents=True, exist_ok=True)
        self.rank, self.size = group.rank, group.size
        self._folder, self._stop = folder, stop
        self._calls = 0

    def gather(self, value: object) -> list[Any]:
        self._calls += 1
        written = self._folder / f"unfinished-{self.rank}"
        written.write_bytes(pickle.dumps(value))
        written.rename(self._file(self.rank))
        return [self._read(rank) for rank in range(self.size)]

    def swap(self, sends: Sequence[Floats], counts: Sequence[int]) -> list[Floats]:
        received = [given[self.rank] for given in self.gather(list(sends))]
        assert [values.size for values in received] == list(counts)
        return received

    def _file(self, rank: int) -> Path:
        return self._folder / f"{self._calls}-{rank}"

    def _read(self, rank: int) -> Any:
        while True:
            try:
                return pickle.loads(self._file(rank).read_bytes())  # noqa: S301 - this test's own
            except FileNotFoundError:
                if self._stop.is_set():
                    message = "The launcher has ended the replica's processes."
                    raise GroupError(message) from None
                time.sleep(_PAUSE_SECONDS)
