"""Where the replicas of a run go: `places` of a spec. A place is a region of an account; `home` is the stack's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from muster.contract import names
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.run_limits import RUN_MAX_SECONDS
from muster.contract.training.values import InstanceType, TrainingPlanArn, Wording

HOME = "home"
"""The place of the stack itself; no other place has this name."""
PLACES_MAX = 8  # Lambda: the environment of a function has at most 4 KB; IAM: the policies of its role 10 KB
PLACE_NAME_MAX = 16
ENV_LOCAL_PLACES = "MUSTER_LOCAL_PLACES"
"""The places of the embedded cloud as JSON, in the shell that uses it: a local deployment may use them. By name, each
with region, account, endpoint and credentials."""

PlaceName = Annotated[
    str,
    Field(max_length=PLACE_NAME_MAX, pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"),
    Wording(f"lower-case letters, digits and single hyphens, up to {PLACE_NAME_MAX}, with a letter at the beginning"),
]

RUNGS_MAX = 20
RETURN_SECONDS = 3_600


class Rung(Document):
    """One choice of a ladder: where and on what a replica may train."""

    place: PlaceName = Field(default=HOME, description="a place of the stack; `home` is its own region")
    instance_type: InstanceType | None = Field(default=None, description="default: the spec's instance_type")
    spot: bool | None = Field(default=None, description="default: the spec's spot")
    training_plan: TrainingPlanArn | None = Field(
        default=None, description="the training plan that reserves the instances, in this place"
    )
    price_cap: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="dollars for an hour of an instance on demand, as AWS lists it, also with spot or a training plan, "
        "whose prices are not known; a dearer rung is passed over",
    )
    at_most: int | None = Field(
        default=None, ge=1, le=names.REPLICAS_MAX, description="how many replicas may be on it at once"
    )

    def is_spot(self, own: bool) -> bool:
        """Whether its jobs are on spot; `own`: those of the spec. A training plan reserves instances all the same."""
        return (own if self.spot is None else self.spot) and self.training_plan is None


class Places(Document):
    """Fixed shares, or a ladder that each replica climbs while it finds no instance."""

    shares: dict[PlaceName, Annotated[int, Field(ge=1, le=names.REPLICAS_MAX)]] = Field(
        default_factory=dict, max_length=PLACES_MAX, description="how many replicas are in each place"
    )
    ladder: list[Rung] = Field(
        default_factory=list, max_length=RUNGS_MAX, description="what is tried one after the other, cheapest first"
    )
    return_after_seconds: int = Field(
        default=RETURN_SECONDS,
        ge=0,
        le=RUN_MAX_SECONDS,
        description="how long after a rung had no instance a replica whose attempt ends tries it again",
    )
    by_seconds: int | None = Field(
        default=None,
        ge=1,
        le=RUN_MAX_SECONDS,
        description="seconds after the launch by which the run should be done: what is on demand below spot is tried "
        "last until spot could miss it, and first from then on",
    )

    @model_validator(mode="before")
    @classmethod
    def _shares_alone(cls, value: object) -> object:
        """`{oregon: 4, tokyo: 4}` is short for `{shares: {…}}`."""
        if isinstance(value, dict) and value and not value.keys() & cls.model_fields.keys():
            return {"shares": value}
        return value

    @property
    def named(self) -> tuple[str, ...]:
        """The places that it names, each once."""
        return tuple(dict.fromkeys(self.shares or (rung.place for rung in self.ladder)))

    def share_of(self, rank: int) -> str:
        """The place of a rank where the shares are fixed: ranks are given in the order of the places' names.

        A document's fields have no order that every program keeps, so the order in which they are written is not used.
        """
        for name, count in sorted(self.shares.items()):
            if rank < count:
                return name
            rank -= count
        message = f"no place has a share for rank {rank}"
        raise LookupError(message)

    def ranks_in(self, place: str) -> range:
        """The ranks of a place where the shares are fixed."""
        before = sum(count for name, count in self.shares.items() if name < place)
        return range(before, before + self.shares.get(place, 0))

    def instance_types(self, own: Sequence[str]) -> tuple[str, ...]:
        """The types on which a replica may run; `own`: those of the spec."""
        if not self.ladder:
            return tuple(own)
        return tuple(dict.fromkeys(rung.instance_type or own[0] for rung in self.ladder))

    def problems(self, replicas: int) -> Iterator[Problem]:
        """What does not fit together. Pure."""
        if bool(self.shares) == bool(self.ladder):
            statement = "both shares and ladder are set" if self.shares else "neither shares nor ladder is set"
            remedy = "write {oregon: 4, tokyo: 4} for fixed shares, or {ladder: […]}"
            yield StatedProblem("places", statement, remedy)
        if self.shares:
            given = sum(self.shares.values())
            if given != replicas:
                allowed = f"together as many as replicas ({replicas})"
                yield Problem("places", f"shares of {given} replicas", "correct the shares or replicas", allowed)
            for field in {"return_after_seconds", "by_seconds"} & self.model_fields_set:
                if getattr(self, field) != type(self).model_fields[field].default:
                    yield StatedProblem(f"places.{field}", "set without ladder", "leave it out: shares are fixed")
        if len(self.named) > PLACES_MAX:
            yield Problem("places.ladder", f"{len(self.named)} places", "leave some out", f"at most {PLACES_MAX}")
        yield from _ladder_problems(self.ladder, replicas)


def _ladder_problems(ladder: Sequence[Rung], replicas: int) -> Iterator[Problem]:
    for number, rung in enumerate(ladder):
        field = f"places.ladder[{number}]"
        if rung in ladder[:number]:
            yield StatedProblem(field, f"the same as rung {ladder.index(rung)}", "leave one of them out")
        if rung.training_plan is not None and rung.spot:
            yield StatedProblem(f"{field}.training_plan", "set together with spot: true", "leave one of the two out")
    room = [rung.at_most for rung in ladder]
    if ladder and None not in room and (most := sum(one or 0 for one in room)) < replicas:
        allowed = f"at least replicas ({replicas}), or one rung without at_most"
        yield Problem("places.ladder", f"at_most of all rungs is {most} together", "raise them", allowed)


def undeployed(places: Places, deployed: Iterable[str]) -> Iterator[Problem]:
    """The places of a spec that a stack does not have. Pure."""
    known = [HOME, *sorted(deployed)]
    for name in places.named:
        if name not in known:
            remedy = f"correct it, or add [places.{name}] to muster.toml and run `muster deploy`"
            rungs = [number for number, rung in enumerate(places.ladder) if rung.place == name]
            field = f"places.ladder[{rungs[0]}].place" if rungs else f"places.{name}"
            yield Problem(field, repr(name), remedy, f"places of the stack: {', '.join(known)}")
