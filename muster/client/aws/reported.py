"""Executions as Step Functions reports them, reduced to what a client needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from muster.contract.aws.prices import SHIPPED_PRICES, PriceTable
from muster.contract.backend import Backend
from muster.contract.document import json_object
from muster.contract.spec.elastic import SeatLimits
from muster.contract.spec.recipe_reference import RunRecipe
from muster.contract.training.ranks import parse_ranks

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef, ExecutionListItemTypeDef
    from pydantic import JsonValue


_RANKS = r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*"


class ExecutionStatus(StrEnum):
    """The statuses of a Step Functions execution."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    ABORTED = "ABORTED"
    PENDING_REDRIVE = "PENDING_REDRIVE"


@dataclass(frozen=True)
class ExecutionSummary:
    """One line of ListExecutions."""

    name: str
    status: ExecutionStatus
    started_at: datetime
    ended_at: datetime | None

    @classmethod
    def from_item(cls, item: ExecutionListItemTypeDef) -> ExecutionSummary:
        """The execution of an ExecutionListItem."""
        return cls(item["name"], ExecutionStatus(item["status"]), item["startDate"], item.get("stopDate"))


@dataclass(frozen=True)
class Execution(ExecutionSummary):
    """What DescribeExecution says of a run."""

    replicas: int
    error: str
    cause: str
    parent: str | None = None
    may_continue: bool = False
    """Whether its continuation policy may start a continuation."""
    sweep: Mapping[str, Sequence[JsonValue]] = field(default_factory=dict)
    """The values of each rank, by name."""
    recipe: RunRecipe | None = None
    """None also where the first step of the run has to resolve it."""
    trains_apart: bool = False
    """Whether each replica has rounds of its own."""
    seats: SeatLimits | None = None
    """Of a run whose replicas come and go; None where their number is fixed."""
    has_places: bool = False
    """Whether its replicas may run in other places than the stack's own region."""
    spec: Mapping[str, JsonValue] = field(default_factory=dict)
    """As it was written; empty where it cannot be read."""
    clusters: Mapping[int, str] = field(default_factory=dict)
    """The ranks whose jobs run on HyperPod clusters, with the names of these; no name: the stack's only cluster."""

    @property
    def prices(self) -> PriceTable:
        """The shipped prices, and those of the spec, as far as they can be read."""
        found = self.spec.get("usd_per_hour")
        named = found.items() if isinstance(found, dict) else ()
        return SHIPPED_PRICES.with_prices({name: usd for name, usd in named if isinstance(usd, int | float)})

    @property
    def end(self) -> str:
        """Why it has ended, as Step Functions says it."""
        return ": ".join(filter(None, (self.error, self.cause)))

    @classmethod
    def from_description(cls, answer: DescribeExecutionOutputTypeDef) -> Execution:
        """The execution in an answer of DescribeExecution."""
        # The input of an execution whose spec was refused may be anything.
        spec = json_object(answer.get("input", ""))
        return cls(
            name=answer["name"],
            status=ExecutionStatus(answer["status"]),
            started_at=answer["startDate"],
            ended_at=answer.get("stopDate"),
            replicas=_replicas(spec),
            seats=SeatLimits.of(spec),
            parent=_parent(spec),
            may_continue=spec.get("continue") is not None,
            recipe=_recipe(spec),
            sweep=_sweep(spec),
            has_places=spec.get("places") is not None,
            spec=spec,
            clusters=_clusters(spec),
            trains_apart=bool(_sweep(spec)) and (spec.get("trainer") is not None or spec.get("hook") is not None),
            error=answer.get("error") or "",
            cause=_message(answer.get("cause") or ""),
        )


def _replicas(spec: Mapping[str, JsonValue]) -> int:
    """How many replicas the input asks for; 0 when it cannot be read (a spec that was refused)."""
    replicas = spec.get("replicas")
    replicas = replicas.get("max") if isinstance(replicas, dict) else replicas
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 0


def _sweep(spec: Mapping[str, JsonValue]) -> dict[str, list[JsonValue]]:
    """The values of each rank; empty when they cannot be read."""
    sweep = spec.get("sweep")
    named = sweep.items() if isinstance(sweep, dict) else ()
    return {name: values for name, values in named if isinstance(values, list)}


def _clusters(spec: Mapping[str, JsonValue]) -> dict[int, str]:
    """The clusters of the ranks whose backend is one, as far as they can be read."""
    found = {rank: _cluster(spec) for rank in range(_replicas(spec))} if _is_on_cluster(spec) else {}
    overrides = spec.get("overrides")
    for ranks, override in overrides.items() if isinstance(overrides, dict) else ():
        if not isinstance(override, dict) or re.fullmatch(_RANKS, ranks) is None:
            continue
        elsewhere = override.get("backend")
        for rank in (rank for part in parse_ranks(ranks) for rank in part if rank < _replicas(spec)):
            if elsewhere is not None and not _is_on_cluster(override):
                found.pop(rank, None)
            elif elsewhere is not None or rank in found:
                found[rank] = _cluster(override) if override.get("hyperpod") else _cluster(spec)
    return found


def _is_on_cluster(part: Mapping[str, JsonValue]) -> bool:
    return part.get("backend") == Backend.HYPERPOD.value


def _cluster(part: Mapping[str, JsonValue]) -> str:
    section = part.get("hyperpod")
    name = section.get("cluster") if isinstance(section, dict) else None
    return name if isinstance(name, str) else ""


def _recipe(spec: Mapping[str, JsonValue]) -> RunRecipe | None:
    """The recipe that a client has resolved."""
    found = spec.get("recipe")
    texts = [found.get(name) for name in ("name", "family", "digest")] if isinstance(found, dict) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    name, family, digest = map(str, texts)
    return RunRecipe(name=name, family=family, digest=digest)


def _parent(spec: Mapping[str, JsonValue]) -> str | None:
    """The run that this one continues."""
    parent = spec.get("resume_from")
    return parent if isinstance(parent, str) else None


def _message(cause: str) -> str:
    """What happened, out of a cause: the links for readers of the console follow a blank line and are left out.

    The cause of a failed function ends with JSON that holds the message.
    """
    said, _, _ = cause.partition("\n\n")
    words, brace, rest = said.partition("{")
    try:
        value = json.loads(brace + rest)
    except ValueError:
        return said
    return f"{words}{value.get('errorMessage', brace + rest)}"
