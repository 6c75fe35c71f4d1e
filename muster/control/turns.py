"""Asking for a turn and giving it back: compare-and-swap on the queue, a task token for who waits. Nobody polls."""

from __future__ import annotations

from collections.abc import Callable

from muster.contract.layout import RunLayout
from muster.contract.turns import TURNS_KEY, Turn, Turns, TurnToken
from muster.control.documents import RunDocuments
from muster.control.store import Store
from muster.control.tokens import Tokens


class RunQueue:
    """The queue of a stack that runs at most `cap` replicas at once. `release` wakes who waits on a task token."""

    def __init__(self, store: Store, release: Callable[[str], object], cap: int) -> None:
        self._store = store
        self._release = release
        self._cap = cap

    def is_admitted(self, execution_arn: str) -> bool:
        """Whether the run's turn has come."""
        return self._read()[0].is_admitted(execution_arn)

    def ask(self, turn: Turn, token: str) -> bool:
        """Queue up; whether it is the run's turn already. Else whoever gives a turn back completes the token.

        The token is there before the queue is looked at: a turn that comes in between finds it. Called again (after a
        timeout of the wait) it repairs a call that was lost.
        """
        self._keep(turn.run, token)
        turns = self._update(lambda before: before.asked(turn, self._cap))
        if not turns.is_admitted(turn.execution_arn) and (over := self._over(turns)):
            turns = self._update(lambda before: before.without(over, self._cap))
        self._call(turns)
        return turns.is_admitted(turn.execution_arn)

    def leave(self, execution_arn: str) -> None:
        """The run is settled: its replicas are free for the next."""
        self._call(self._update(lambda before: before.without({execution_arn}, self._cap)))

    def _over(self, turns: Turns) -> set[str]:
        """Runs that are settled and did not get to say so. One that was cut off is settled by stop or sweep first."""
        return {
            turn.execution_arn
            for turn in turns.turns
            if turn.admitted and RunDocuments(self._store, turn.run).result() is not None
        }

    def _call(self, turns: Turns) -> None:
        """Wake everybody who has a turn: whom an earlier call has woken does not hear it, and none is forgotten."""
        for turn in turns.turns:
            if turn.admitted:
                found = self._store.get(RunLayout(turn.run).turn)
                if found is not None:
                    token = TurnToken.from_json(found.body, RunLayout(turn.run).turn).token
                    self._release(token)

    def _keep(self, run: str, token: str) -> None:
        key, body = RunLayout(run).turn, TurnToken(token=token).to_json()
        for _ in self._store.attempts(self._store.uri(key)):
            found = self._store.get(key)
            if self._store.create(key, body) if found is None else self._store.replace(key, body, found.etag):
                return

    def _update(self, change: Callable[[Turns], Turns]) -> Turns:
        for _ in self._store.attempts(self._store.uri(TURNS_KEY)):
            before, etag = self._read()
            after = change(before)
            body = after.to_json()
            if after == before or (
                self._store.create(TURNS_KEY, body) if etag is None else self._store.replace(TURNS_KEY, body, etag)
            ):
                return after
        raise AssertionError  # attempts() ends by raising

    def _read(self) -> tuple[Turns, str | None]:
        found = self._store.get(TURNS_KEY)
        if found is None:
            return Turns(), None
        return Turns.from_json(found.body, self._store.uri(TURNS_KEY)), found.etag


def run_queue(store: Store, tokens: Tokens, cap: int | None) -> RunQueue | None:
    """The queue of a stack; None where nothing is capped, and then it costs nothing."""
    return None if cap is None else RunQueue(store, tokens.release, cap)
