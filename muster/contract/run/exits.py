"""How a replica tells the control plane how it ended: an exit code, and the same in words before the failure's text.

SageMaker ends a job's failure reason with the exit code, but cuts the reason to 1,024 characters. What stands in front
is there whatever the text is, so the words come first and the code only where there are none.
"""

from __future__ import annotations

import re
from enum import IntEnum


class ReplicaExit(IntEnum):
    """How a replica's process ended (sysexits.h where one fits)."""

    DONE = 0
    USER_CODE = 1
    BAD_INPUT = 64  # EX_USAGE: the run document or the environment cannot be used
    RENDEZVOUS = 69  # EX_UNAVAILABLE: the bucket, or a quorum, could not be reached in time
    OUT_OF_MEMORY = 71  # EX_OSERR: the trainer ran out of memory, of the machine or of its GPU
    FENCED = 75  # a newer attempt or incarnation carries this rank
    KILLED = 137  # SIGKILL: the system ends whoever takes its last memory like this
    STOPPED = 143  # SIGTERM: saved what there was to save

    @property
    def word(self) -> str:
        """Its name in a failure's text."""
        return "saved" if self is ReplicaExit.STOPPED else self.name.lower().replace("_", "-")


MORE_MEMORY = "choose an instance_type with more memory, or train on smaller batches"

_BY_WORD = {code.word: code for code in ReplicaExit}
# SageMaker puts its own word before what it finds in output/failure, and the code behind it. Between the two is the
# user's own text, which may say the same words.
_WORD = re.compile(r"AlgorithmError: \[([a-z-]+)\] ")
_CODE = re.compile(r"exit code:? (\d{1,3})\W*$", re.IGNORECASE)


def told(code: ReplicaExit, text: str) -> str:
    """What a replica leaves in output/failure."""
    return f"[{code.word}] {text}"


def read_exit(reason: str) -> ReplicaExit | None:
    """The exit that a job's FailureReason tells of; None for one that is not ours."""
    word = _WORD.match(reason)
    if word is not None and word[1] in _BY_WORD:
        return _BY_WORD[word[1]]
    code = _CODE.search(reason)
    return ReplicaExit(int(code[1])) if code is not None and int(code[1]) in set(ReplicaExit) else None
