"""The trainer's own state (inner optimizer, data position, random numbers), round by round, in a folder.

SageMaker syncs the folder to S3 and restores it when the replica restarts. A file is `<kind>-<round>.ckpt`: one line
of JSON (round, bytes, sha256), then the state. Kinds are `trainer`, as the front end packed it, and `residual`, the
residual of error feedback (float32, flat).

A round's state is written before the round's contribution is sent. The newest state that is not after the run's last
committed round is therefore at the end of that round's data: a process that continues from it sees no data twice.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path

from pydantic import Field

from muster.contract.document import StoredDocument
from muster.contract.errors import DocumentError

# The newest may be one round ahead of the run's last committed round; the third is a spare if a file is damaged.
KEPT = 3

log = logging.getLogger("muster.replica")


class _Header(StoredDocument):
    round: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Checkpoints:
    """The states of one kind in one folder."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._name = re.compile(rf"{kind}-(\d{{8}})\.ckpt")

    def save(self, round_: int, state: bytes | memoryview) -> None:
        """Store the state at the end of a round's inner steps atomically, and delete the oldest."""
        header = _Header(round=round_, bytes=len(state), sha256=hashlib.sha256(state).hexdigest())
        path = self._path(round_)
        unfinished = path.with_suffix(".tmp")
        self._folder.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            file.write(header.to_json().rstrip(b"\n") + b"\n")
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)  # noqa: PTH105
        for old in self._rounds()[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def load(self, last_round: int) -> tuple[int, bytes] | None:
        """The newest intact state that is not after `last_round`, with its round. Later ones are deleted.

        They belong to rounds that the run never committed and that will be trained again.
        """
        rounds = self._rounds()
        for later in (round_ for round_ in rounds if round_ > last_round):
            self._path(later).unlink(missing_ok=True)
        for round_ in (round_ for round_ in reversed(rounds) if round_ <= last_round):
            if (state := self._read(round_)) is not None:
                return round_, state
        return None

    def _rounds(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        matches = (self._name.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def _path(self, round_: int) -> Path:
        return self._folder / f"{self._kind}-{round_:08d}.ckpt"

    def _read(self, round_: int) -> bytes | None:
        path = self._path(round_)
        line, _, state = path.read_bytes().partition(b"\n")
        try:
            header = _Header.from_json(line, str(path))
        except DocumentError as error:
            log.warning("event=damaged-checkpoint reason=%r", str(error))
            return None
        if (header.round, header.bytes, header.sha256) != (round_, len(state), hashlib.sha256(state).hexdigest()):
            log.warning("event=damaged-checkpoint path=%s reason='its checksum does not match'", path)
            return None
        return state
