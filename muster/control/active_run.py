"""One run at work: its plan, its documents, and the services through which it acts."""

from __future__ import annotations

from dataclasses import dataclass

from muster.contract.errors import DocumentError
from muster.contract.plan import Plan
from muster.control.documents import RunDocuments
from muster.control.jobs import Jobs
from muster.control.store import Store
from muster.control.tokens import Tokens


@dataclass(frozen=True)
class ActiveRun:
    """What attempt, react and conclude share."""

    plan: Plan
    documents: RunDocuments
    jobs: Jobs
    tokens: Tokens


class Runs:
    """The runs of a stack. Plans never change, so a warm function reads each but once."""

    _CACHED = 32

    def __init__(self, store: Store, jobs: Jobs, tokens: Tokens) -> None:
        self._store = store
        self._jobs = jobs
        self._tokens = tokens
        self._plans: dict[str, Plan] = {}

    def find(self, run: str) -> ActiveRun | None:
        """The run of that name, or None."""
        documents = RunDocuments(self._store, run)
        plan = self._plans.get(run) or documents.plan()
        if plan is None:
            return None
        if len(self._plans) >= self._CACHED:
            self._plans.clear()
        self._plans[run] = plan
        return ActiveRun(plan, documents, self._jobs, self._tokens)

    def require(self, run: str) -> ActiveRun:
        """The run of that name.

        Raises:
            DocumentError: it has no plan.
        """
        found = self.find(run)
        if found is None:
            documents = RunDocuments(self._store, run)
            raise DocumentError(self._store.uri(documents.layout.plan), "it does not exist")
        return found
