"""One run at work: its plan, its documents, and the services through which it acts."""

from __future__ import annotations

from dataclasses import dataclass

from muster.contract.plan import Plan
from muster.control.documents import RunDocuments
from muster.control.jobs import Jobs
from muster.control.tokens import Tokens


@dataclass(frozen=True)
class ActiveRun:
    """What attempt, react and conclude share."""

    plan: Plan
    documents: RunDocuments
    jobs: Jobs
    tokens: Tokens

    @classmethod
    def load(cls, documents: RunDocuments, jobs: Jobs, tokens: Tokens) -> ActiveRun:
        """The run whose documents these are.

        Raises:
            DocumentError: it has no plan.
        """
        return cls(documents.require_plan(), documents, jobs, tokens)
