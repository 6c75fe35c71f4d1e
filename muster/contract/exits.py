"""How a replica reports to the control plane how it ended: a word in front of the failure's text, and an exit code.

SageMaker ends a job's failure reason with the exit code, but cuts the reason to 1,024 characters. Its beginning is
always kept, so the word comes first, and the code is read only where there is no word. Free of dependencies: a
container reads it before anything is installed.
"""

from __future__ import annotations

import re
from enum import IntEnum

FAILURE_CHARACTERS = 1024  # DescribeTrainingJob: FailureReason has at most 1,024 characters
MORE_MEMORY = "choose an instance_type with more memory, or train on smaller batches"


class ReplicaExit(IntEnum):
    """How a replica's process ended (sysexits.h where one fits)."""

    DONE = 0
    USER_CODE = 1
    BAD_INPUT = 64  # EX_USAGE: the run document or the environment cannot be used
    RENDEZVOUS = 69  # EX_UNAVAILABLE: the bucket, or a quorum, could not be reached in time
    OUT_OF_MEMORY = 71  # EX_OSERR: the trainer used up the memory of the machine or of its GPU
    FENCED = 75  # a newer attempt or incarnation has claimed this rank
    # A rule of `watch`, which has the same name, was met, and the spec says that the attempt ends.
    HANG = 80
    SLOW = 81
    LOSS = 82
    NO_ROUND = 83
    DIVERGENCE = 84
    KILLED = 137  # SIGKILL: how the kernel ends a process that takes the last of the memory
    STOPPED = 143  # SIGTERM: a checkpoint was saved where possible

    @property
    def word(self) -> str:
        """Its name in a failure's text."""
        return "saved" if self is ReplicaExit.STOPPED else self.name.lower().replace("_", "-")


_BY_WORD = {code.word: code for code in ReplicaExit}
# A program of a user may end with any code. These always come with their word.
_WITH_WORD = {code for code in ReplicaExit if ReplicaExit.HANG <= code <= ReplicaExit.DIVERGENCE}
_BY_CODE = {int(code): code for code in ReplicaExit if code not in _WITH_WORD}
# SageMaker puts its own word in front of the content of output/failure, and the exit code after it. Between the two
# is the user's own text, which may contain the same words.
_WORD = re.compile(r"AlgorithmError: \[([a-z-]+)\] ")
_CODE = re.compile(r"exit code:? (\d{1,3})\W*$", re.IGNORECASE)


def with_exit_word(code: ReplicaExit, text: str) -> str:
    """The text that a replica writes to output/failure."""
    return f"[{code.word}] {text}"


def failure_text(reason: str) -> str:
    """The content of output/failure, which SageMaker reads as FailureReason: one line, cut to what SageMaker keeps."""
    return " ".join(reason.split())[:FAILURE_CHARACTERS]


def read_exit(reason: str) -> ReplicaExit | None:
    """The exit that a job's FailureReason reports; None where it is not one of ours."""
    word = _WORD.match(reason)
    if word is not None and word[1] in _BY_WORD:
        return _BY_WORD[word[1]]
    code = _CODE.search(reason)
    return None if code is None else _BY_CODE.get(int(code[1]))
