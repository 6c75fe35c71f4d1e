"""Reading and writing the documents of a run."""

from __future__ import annotations

from collections.abc import Callable

from muster.contract.errors import DocumentError
from muster.contract.fence import Fence
from muster.contract.layout import RunLayout
from muster.contract.plan import Plan
from muster.contract.record import Record
from muster.contract.result import Result
from muster.control.store import Store


class RunDocuments:
    """The documents of one run."""

    def __init__(self, store: Store, run: str) -> None:
        self.store = store
        self.run = run
        self.layout = RunLayout(run)

    def plan(self) -> Plan | None:
        """The plan; None when there is no such run."""
        found = self.store.get(self.layout.plan)
        return None if found is None else Plan.from_json(found.body, self.store.uri(self.layout.plan))

    def require_plan(self) -> Plan:
        """The plan of a run that must have one.

        Raises:
            DocumentError: there is none.
        """
        plan = self.plan()
        if plan is None:
            raise DocumentError(self.store.uri(self.layout.plan), "it does not exist")
        return plan

    def fence(self) -> Fence | None:
        """The fence, where it stands."""
        found = self.store.get(self.layout.fence)
        return None if found is None else Fence.from_json(found.body, self.store.uri(self.layout.fence))

    def raise_fence(self, fence: Fence) -> Fence:
        """Write the fence; where one stands already, that one counts."""
        if self.store.create(self.layout.fence, fence.to_json()):
            return fence
        return self.fence() or fence

    def result(self) -> Result | None:
        """The settlement, where there is one."""
        found = self.store.get(self.layout.result)
        return None if found is None else Result.from_json(found.body, self.store.uri(self.layout.result))

    def record(self, rank: int) -> Record | None:
        """The record of a replica; None before its first attempt."""
        found = self.store.get(self.layout.record(rank))
        return None if found is None else Record.from_json(found.body, self.store.uri(self.layout.record(rank)))

    def update_record(self, rank: int, change: Callable[[Record | None], Record | None]) -> Record | None:
        """Compare-and-swap: `change` sees the current record and answers the next, or None to leave it.

        Called again with fresh eyes whenever another writer was first. Returns the record that stands at the end.
        """
        key = self.layout.record(rank)
        for _ in self.store.attempts(self.store.uri(key)):
            found = self.store.get(key)
            before = None if found is None else Record.from_json(found.body, self.store.uri(key))
            after = change(before)
            if after is None or after == before:
                return before
            body = after.to_json()
            written = self.store.create(key, body) if found is None else self.store.replace(key, body, found.etag)
            if written:
                return after
        raise AssertionError  # attempts() ends by raising
