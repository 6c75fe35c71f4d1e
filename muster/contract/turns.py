"""Whose turn it is: the queue of runs in a stack that caps its concurrent replicas. One small document, pure rules.

First come, first served: a run that waits for many replicas is not overtaken by smaller ones, or it would never start.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document

TURNS_VERSION = 1
TURNS_KEY = "queue/replicas.json"
"""Clients may read it: it names runs and nothing secret."""


class Turn(Document):
    """One run that has its replicas, or waits for them."""

    run: str
    execution_arn: str
    replicas: int = Field(ge=1)
    asked_at: str
    admitted: bool = False


class TurnToken(Document):
    """The task token with which a waiting run is called; it lies under `control/`."""

    token: str


class Turns(Document):
    """All runs that are under way or wait, in the order in which they asked."""

    version: Annotated[int, Field(ge=TURNS_VERSION, le=TURNS_VERSION)] = TURNS_VERSION
    turns: tuple[Turn, ...] = ()

    def asked(self, turn: Turn, cap: int) -> Turns:
        """With one more run at the end, unless it has asked before."""
        known = any(other.execution_arn == turn.execution_arn for other in self.turns)
        return self._admitting(self.turns if known else (*self.turns, turn), cap)

    def without(self, execution_arns: Collection[str], cap: int) -> Turns:
        """Without runs that are over; those whose turn has come thereby are admitted."""
        return self._admitting(tuple(turn for turn in self.turns if turn.execution_arn not in execution_arns), cap)

    def is_admitted(self, execution_arn: str) -> bool:
        """Whether the run may launch its replicas."""
        return any(turn.admitted for turn in self.turns if turn.execution_arn == execution_arn)

    def before(self, run: str) -> tuple[str, ...] | None:
        """The runs behind which `run` waits; None when it does not wait."""
        place = next((index for index, turn in enumerate(self.turns) if turn.run == run), None)
        if place is None or self.turns[place].admitted:
            return None
        return tuple(turn.run for turn in self.turns[:place])

    def _admitting(self, turns: tuple[Turn, ...], cap: int) -> Turns:
        used = sum(turn.replicas for turn in turns if turn.admitted)
        after = []
        blocked = False
        for turn in turns:
            if not turn.admitted and not blocked:
                # Where the cap was lowered below a run that waits, it starts alone rather than never.
                blocked = used > 0 and used + turn.replicas > cap
                if not blocked:
                    used += turn.replicas
                    after.append(turn.model_copy(update={"admitted": True}))
                    continue
            after.append(turn)
        return self.model_copy(update={"turns": tuple(after)})
