"""What the processes of a replica say of their progress when one of them asks, over their board."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from threading import Thread

from pydantic import TypeAdapter

from muster.replica.group.board import Board, BoardError, InnerGroup

# A process whose threads run answers at once. One that does not answer is hung in native code, or gone.
ANSWER_SECONDS = 5.0
# For the verdict of the one that asks; it may be hung itself by then.
_VERDICT_SECONDS = 4 * ANSWER_SECONDS
_SHOWN = 3


@dataclass(frozen=True)
class ProcessProgress:
    """The progress of one process.

    Attributes:
        steps: inner steps that it has made.
        idle_seconds: since its last step.
        waits: whether it is in an exchange.
        place: where its training loop is.
    """

    steps: int
    idle_seconds: float
    waits: bool
    place: str

    @property
    def words(self) -> str:
        """`in step 121, in an exchange: queue.py:171 in get`."""
        return f"in step {self.steps + 1}{', in an exchange' if self.waits else ''}: {self.place}"


_ANSWER = TypeAdapter(ProcessProgress)


class Inquiry:
    """Asks the processes of the group, and answers in this one."""

    def __init__(
        self, board: Board, group: InnerGroup, answer: Callable[[], ProcessProgress], reported: Callable[[], None]
    ) -> None:
        """`reported`: called in every process when the one that asks has reported a hang of the replica."""
        self._board, self._group, self._answer, self._reported = board, group, answer, reported
        self._number = self._asked = 1
        self.is_open = False
        """Whether a question waits for its verdict."""

    def start(self) -> None:
        """Answer from now on, in a thread of its own."""
        if self._group.size > 1:
            Thread(target=self.serve, name="watch-answers", daemon=True).start()

    def serve(self) -> None:
        """Answer every question, until the board is gone."""
        try:
            while True:
                number = self._number
                self._board.get(_question(number))
                self.is_open = True
                self._number += 1
                self._board.put(_reply(number, self._group.rank), asdict(self._answer()))
                if self._is_reported(number):
                    self._reported()
                self.is_open = False
        except BoardError:
            return

    def _is_reported(self, number: int) -> bool:
        try:
            return bool(self._board.get(_verdict(number), _VERDICT_SECONDS))
        except BoardError:
            return False

    def ask(self, seconds: float = ANSWER_SECONDS) -> dict[int, ProcessProgress] | None:
        """The answers by rank in the group, of those that answer in time; None if another process asks already.

        `conclude` follows.

        Raises:
            BoardError: the board cannot be reached.
        """
        if self._group.size == 1:
            return {0: self._answer()}
        number, rank = self._number, self._group.rank
        if self._board.put(_question(number), rank) != rank:
            return None
        self._asked = number
        over, answers = time.monotonic() + seconds, {}
        for other in range(self._group.size):
            try:
                found = self._board.get(_reply(number, other), max(0.0, over - time.monotonic()))
            except BoardError:
                continue
            answers[other] = _ANSWER.validate_python(found)
        return answers

    def conclude(self, *, is_hang: bool) -> None:
        """After `ask`: whether the answers show a hang, which is reported now.

        Raises:
            BoardError: the board cannot be reached.
        """
        if is_hang:
            self._reported()
        if self._group.size > 1:
            self._board.put(_verdict(self._asked), is_hang)


def _question(number: int) -> str:
    return f"watch/{number}"


def _reply(number: int, rank: int) -> str:
    return f"watch/{number}/{rank}"


def _verdict(number: int) -> str:
    return f"watch/{number}/verdict"


def hang_text(size: int, answers: Mapping[int, ProcessProgress]) -> str:
    """Which of `size` processes hang, by their `answers`, in words. Pure."""
    silent = [rank for rank in range(size) if rank not in answers]
    # A process that has made no step yet may be one that makes none, where the others train for it.
    answers = {rank: answer for rank, answer in answers.items() if answer.steps}
    idle = max((answer.idle_seconds for answer in answers.values()), default=0.0)
    if size == 1:
        return f"no step for {idle:.0f} s: the process is {answers[0].words}"
    least = min((answer.steps for answer in answers.values()), default=0)
    behind = [rank for rank in sorted(answers) if answers[rank].steps == least]
    shown = _listed({rank: answers[rank] for rank in [*behind, *sorted(set(answers) - set(behind))]})
    if silent:
        named = ", ".join(map(str, silent[:_SHOWN]))
        who = f"process {named} of {size} does not answer, and the others have made no step for {idle:.0f} s"
    elif len(behind) == len(answers) > 1:
        who = f"none of the {size} processes has made a step for {idle:.0f} s"
    else:
        seconds = max(answers[rank].idle_seconds for rank in behind)
        named = ", ".join(map(str, behind[:_SHOWN]))
        who = f"process {named} of {size} has made no step for {seconds:.0f} s"
    return f"{who}: {shown}" if shown else who


def _listed(answers: Mapping[int, ProcessProgress]) -> str:
    few = list(answers.items())[:_SHOWN]
    more = [f"and {len(answers) - _SHOWN} more"] if len(answers) > _SHOWN else []
    return "; ".join([*(f"process {rank} is {answer.words}" for rank, answer in few), *more])
