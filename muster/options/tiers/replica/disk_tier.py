"""States on the instance's disk: files of one folder."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from muster.options.tiers.replica.tier import Held, Tier, TierName, failing, superfluous
from muster.replica.states.state_buffer import Bytes

KEPT = 3  # the processes of a replica may be one state apart, and the newest may be damaged
_SUFFIX = ".state"
_UNFINISHED = "unfinished"


class DiskTier(Tier):
    """Survives the container, but not the instance. What is not on the disk when the machine fails is not whole."""

    name = TierName.DISK

    def __init__(self, folder: Path) -> None:
        """`folder` belongs to this process's states alone."""
        self._folder = folder

    @failing(OSError)
    def held(self) -> list[Held]:
        """See `Tier`."""
        names = [path.stem for path in self._folder.glob(f"*{_SUFFIX}")]
        return [held for name in names if (held := Held.named(name)) is not None]

    @failing(OSError)
    def read(self, held: Held) -> Bytes:
        """See `Tier`."""
        return self._path(held).read_bytes()

    @failing(OSError)
    def write(self, held: Held, body: memoryview) -> None:
        """A file under another name, which is then renamed."""
        unfinished = self._folder / _UNFINISHED
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with unfinished.open("wb") as file:
                file.write(body)
            os.replace(unfinished, self._path(held))  # noqa: PTH105
            for old in superfluous(self.held(), held, KEPT):
                self._path(old).unlink(missing_ok=True)
        except OSError:
            # A full disk: what is there of it would fill the disk for all others.
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    def clear(self) -> None:
        """See `Tier`."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, held: Held) -> Path:
        return self._folder / f"{held.name}{_SUFFIX}"
