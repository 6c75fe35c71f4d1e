"""The plan: the spec with every default, limit and place resolved. Written once, never changed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.document import Document, digest
from muster.contract.layout import RunLayout
from muster.contract.spec import Spec

PLAN_VERSION = 1


class Place(Document):
    """Where the jobs of a stack run and meet."""

    bucket: str
    role_arn: str
    job_prefix: str


class Plan(Document):
    """Everything that decides what a run does. Its digest is on every job of the run."""

    version: Annotated[int, Field(ge=PLAN_VERSION, le=PLAN_VERSION)] = PLAN_VERSION
    run: str
    execution_arn: str
    created_at: str
    place: Place
    spec: Spec

    @property
    def layout(self) -> RunLayout:
        """Where the run's objects lie."""
        return RunLayout(self.run)

    @property
    def digest(self) -> str:
        """Names the plan in tags: jobs of another plan are not adopted."""
        return digest(self.model_dump(mode="json", exclude_none=True, exclude={"created_at"}))
