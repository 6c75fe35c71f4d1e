"""Why an attempt did not succeed, in the words that a person needs first, and the command that shows more. Pure."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable

from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_place import written_place

# SageMaker's own words around what the program has written: "AlgorithmError: [out-of-memory] …, exit code: 1".
_PROGRAM = re.compile(r"AlgorithmError: (?P<words>.*?)(?:, exit code: \d{1,3}\W*)?$", re.DOTALL)
_CODE = re.compile(r"exit ?code:? (\d{1,3})\W*$", re.IGNORECASE)
_SIGNALLED = 128  # a shell's exit code for a program that a signal has ended, less the signal's number
_SAID_NOTHING = re.compile(r"(ExitCode \d{1,3}|ExecuteUserScriptError:?)?\W*")


def failure_words(attempt: Attempt) -> str:
    """The reason of an attempt's end without SageMaker's frame; empty for one that succeeded.

    Where SageMaker names none, the place and the error in the last lines of its log: `training.py:41: ValueError: …`.
    """
    found = _PROGRAM.match(attempt.reason)
    words = attempt.reason if found is None else found["words"]
    if found is None or not _SAID_NOTHING.fullmatch(words):
        return words
    return written_place(attempt.last_lines) or _of_code(attempt.reason)


def _of_code(reason: str) -> str:
    """What an exit code says: `ended by SIGSEGV (exit code 139)`."""
    code = _CODE.search(reason)
    if code is None:
        return reason
    number = int(code[1]) - _SIGNALLED
    name = signal.Signals(number).name if number in {*map(int, signal.Signals)} else None
    how = f"exited with code {code[1]}" if name is None else f"ended by {name} (exit code {code[1]})"
    return f"{how} and wrote no reason"


def logs_command(run: str, rank: int, attempt: int) -> str:
    """The command that shows what an attempt has written."""
    return f"muster logs {run} --rank {rank} --attempt {attempt}"


def counted(names: Iterable[str]) -> str:
    """`infrastructure ×5, spot`: each of `names` once, with how often it is there, the most frequent first."""
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in Counter(names).most_common())
