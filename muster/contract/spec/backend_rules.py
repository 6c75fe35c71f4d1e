"""What options say about specs whose replicas, or some of them, run elsewhere than as training jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from muster.contract.backend import Backend
from muster.contract.errors import Problem, StatedProblem

if TYPE_CHECKING:
    from muster.contract.spec.spec_fields import SpecFields
    from muster.contract.training.clusters import Cluster
    from muster.contract.training.overrides import Override


S = TypeVar("S", bound="SpecFields")


class Placed(Protocol):
    """Writes the places of its replicas out."""

    def __call__(self, spec: S, clusters: Sequence[Cluster], /) -> S:
        """The spec with them."""


@dataclass(frozen=True)
class BackendRules:
    """The rules of an option's backend (the seam `contract.rules`). All of them are pure."""

    problems: Callable[[SpecFields], Iterable[Problem]]
    """Between the fields of a spec."""
    launch_problems: Callable[[str, str, SpecFields], Iterable[Problem]]
    """With the names that a launch chooses: that of the run, and the stack's job prefix."""
    place_problems: Callable[[SpecFields, Sequence[Cluster]], Iterable[Problem]]
    """With the places of the stack."""
    placed: Placed


def rules_for(spec: SpecFields) -> Sequence[BackendRules]:
    """The rules that a spec needs; of training jobs alone none."""
    return _offered() if _names_other_backend(spec) else ()


def backend_problems(spec: SpecFields) -> Iterator[Problem]:
    """Problems with the other backends that a spec names."""
    rules = rules_for(spec)
    for one in rules:
        yield from one.problems(spec)
    if not rules and _names_other_backend(spec):
        remedy = "leave backend and its section out, or install Muster with this backend"
        yield StatedProblem("backend", "this installation of Muster runs training jobs alone", remedy)


def _names_other_backend(spec: SpecFields) -> bool:
    parts: list[SpecFields | Override] = [spec, *spec.overrides.values()]
    return any(part.backend not in {None, Backend.TRAINING_JOB} or part.hyperpod is not None for part in parts)


@cache
def _offered() -> tuple[BackendRules, ...]:
    # Not for other specs: every function reads one, and it would add to every cold start.
    from muster.options import offers  # noqa: PLC0415

    return tuple(offers("contract.rules", BackendRules))
