"""The spec: what a user writes, as YAML, as JSON or as the input of the execution."""

from __future__ import annotations

from pydantic import ValidationInfo, field_validator, model_validator

from muster.contract.errors import StatedProblem
from muster.contract.spec.consistency import InconsistentSpecError, inconsistencies
from muster.contract.spec.elastic import QUORUM, range_problems, with_seats
from muster.contract.spec.rank_spec import spec_of_rank
from muster.contract.spec.recipe_reference import RecipeReference
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec_fields import STORED, SpecFields
from muster.contract.spec.sweep import with_sweep_defaults
from muster.contract.training.resources import AUTO, DEFAULT_INSTANCE_TYPE

# Step Functions: the input of an execution and of a task has at most 262,144 bytes; the rest is for the names that
# the workflow puts beside the spec.
SPEC_BYTES_MAX = 260_000


class Spec(SpecFields):
    """One run: what every replica executes, on what instances, and what its failures mean. Its fields fit together."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_sections(cls, value: object) -> object:
        return with_sweep_defaults(with_seats(value)) if isinstance(value, dict) else value

    @field_validator("replicas", mode="before")
    @classmethod
    def _seats(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        if problems := list(range_problems(value)):
            raise InconsistentSpecError(problems)
        return value["max"]

    @field_validator("recipe", mode="before")
    @classmethod
    def _resolved_recipe(cls, value: object) -> object:
        if value is None or isinstance(value, RecipeReference) or (isinstance(value, dict) and "digest" in value):
            return value
        remedy = "start the run with `muster launch`, which resolves it, or see it with `muster recipe resolve`"
        raise InconsistentSpecError([StatedProblem("recipe", "not resolved yet", remedy)])

    @model_validator(mode="after")
    def _fields_fit_together(self, info: ValidationInfo) -> Spec:
        problems = [] if info.context == STORED else list(inconsistencies(self))
        if problems:
            raise InconsistentSpecError(problems)
        return self

    def of_rank(self, rank: int) -> Spec:
        """The spec of one rank: the run's values with the rank's override and its values of the sweep."""
        return spec_of_rank(self, rank)

    def resolved(self) -> Spec:
        """The spec with every default written out, so that a later version's defaults change nothing in it."""
        share = self.rendezvous.quorum
        if share is None and self.elastic is not None and self.rendezvous.min_participants is None:
            share = QUORUM
        waits = {"min_participants": self.min_participants, "quorum": share}
        rendezvous = self.rendezvous.model_copy(update=waits)
        processes = self.processes or (AUTO if self.has_trainer else None)
        instance_type = self.instance_type or (None if self.instance_preferences else DEFAULT_INSTANCE_TYPE)
        return self.model_copy(
            update={
                "reruns": {failure_class: self.budget(failure_class) for failure_class in DEFAULT_BUDGETS},
                "min_replicas": self.quorum,
                "instance_type": instance_type,
                "processes": processes,
                "max_wait_seconds": (self.max_wait_seconds or self.max_runtime_seconds) if self.has_spot else None,
                "rendezvous": rendezvous,
            }
        )
