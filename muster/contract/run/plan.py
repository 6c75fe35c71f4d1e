"""The plan: the spec with every default, limit and place resolved. Written once, never changed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.document import Document, digest
from muster.contract.layout import RunLayout
from muster.contract.run.lineage import Lineage
from muster.contract.spec.spec import Spec

PLAN_VERSION = 1


class Place(Document):
    """Where the jobs of a stack run and meet."""

    bucket: str
    role_arn: str
    job_prefix: str
    package_uri: str | None = Field(default=None, description="Muster's replica package, for specs that bring source")


class Plan(Document):
    """Everything that decides what a run does. Its digest is on every job of the run.

    The digest is computed once and kept: a run outlives the version of Muster that planned it, and a later version
    must not find a later default in an older plan.
    """

    version: Annotated[int, Field(ge=PLAN_VERSION, le=PLAN_VERSION)] = PLAN_VERSION
    run: str
    execution_arn: str
    created_at: str
    place: Place
    spec: Spec
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    lineage: Lineage | None = Field(default=None, description="of a run that goes on where another one ended")

    @classmethod
    def make(
        cls, run: str, execution_arn: str, created_at: str, place: Place, spec: Spec, *, lineage: Lineage | None = None
    ) -> Plan:
        """The plan of a spec, which is written out in full: the same execution and spec give the same bytes."""
        resolved = spec.resolved()
        parts = [run, execution_arn, place.model_dump(mode="json"), resolved.model_dump(mode="json")]
        if lineage is not None:
            parts.append(lineage.model_dump(mode="json"))
        return cls(
            run=run,
            execution_arn=execution_arn,
            created_at=created_at,
            place=place,
            spec=resolved,
            digest=digest(parts),
            lineage=lineage,
        )

    @property
    def layout(self) -> RunLayout:
        """Where the run's objects lie."""
        return RunLayout(self.run)

    @property
    def meeting(self) -> RunLayout:
        """Where the replicas meet and save: under the name of the first run of a lineage."""
        return RunLayout(self.lineage.root) if self.lineage else self.layout

    def claim_number(self, attempt: int) -> int:
        """The number under which an attempt takes its seat: it counts on over all runs of a lineage."""
        return attempt + (self.lineage.attempts_before if self.lineage else 0)
