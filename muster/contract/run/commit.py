"""The commit of a round lists the contributions that count. The first one written is valid for all replicas.

Clients read a run's progress from the commits alone: `RunLayout.commits` + `{round:08d}.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.errors import DocumentError
from muster.contract.names import RUN_MAX
from muster.contract.run.round_values import DEFAULT_UNIT, METRICS_MAX, ROUND_MAX, UNIT, WHOLE_CODECS, Metrics
from muster.contract.run.time_use import Spent, TimeUse
from muster.contract.run.trained_data import DataProgress, EpochShards, TrainedData
from muster.contract.run.training_pace import Pace, TimedRound
from muster.contract.timestamps import Timestamp

PARTS_MAX = 9_999  # four digits in a key
SHARDS_MAX = 99_999  # five digits in a key
COMMITS_LISTED_MAX = 1_000_000
"""How many keys of commits the control plane and clients list: a thousand calls."""
COMMIT_BYTES_MAX = 4 * 1024 * 1024
"""The largest commit that the control plane and clients read: parsed, it takes up to 400 MiB of a function's 1,024."""
_COMMIT_BYTES, _MEMBER_BYTES = 65_536, 4_096  # a member's part comes from a header of at most 4,096 bytes
_KEY = re.compile(r"([0-9]{8})\.json")

STATE = r"^[0-9a-f]{8}$"
"""A digest of parameters."""

HOME = "home"
"""The place of the run's own bucket: the stack's account and region."""
PLACE = r"^[a-z][a-z0-9-]{0,31}$"


class Resumed(StoredPart):
    """The stored inner state from which a process has continued in the middle of a phase."""

    tier: str = Field(max_length=20, pattern=r"^[a-z0-9-]+$", description="where it was: `memory`, `disk` or `s3`")
    round: int = Field(ge=0, le=ROUND_MAX, description="the last round before it")
    step: int = Field(ge=0, description="inner steps after that round; 0: the end of the phase before it")


class Member(StoredPart):
    """A contribution that counts, and the process that uploaded it."""

    rank: int = Field(ge=0)
    attempt: int = Field(ge=1)
    incarnation: int = Field(ge=1, description="the process within the attempt, counted from 1")
    epoch: int = Field(ge=1, description="the claim under which the rank was held; grows over all attempts")
    weight: float = Field(gt=0, le=1e15, allow_inf_nan=False, description="samples or tokens seen in the round")
    checksum: str = Field(pattern=r"^[0-9a-f]{8}$", description="CRC-32 of the contribution's block checksums")
    metrics: Metrics = Field(default_factory=dict)
    parts: int | None = Field(
        default=None, ge=2, le=PARTS_MAX, description="how many objects hold the values, one per process; None: one"
    )
    seconds: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="for which the trainer has worked on the samples"
    )
    norm: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="L2 norm of the values; estimated from a sample if no outliers are excluded. Of a codec that needs "
        "error feedback, before they were encoded",
    )
    sent: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="L2 norm of what such a codec sends; None: `norm`"
    )
    time: Spent = Field(
        default=(), description="milliseconds by activity since the replica's contribution before; (): not known"
    )
    logged: tuple[Annotated[int, Field(ge=0, le=ROUND_MAX)], ...] = Field(
        default=(),
        max_length=METRICS_MAX,
        description="for each metric, by name: how many rounds before this one it was logged; (): not known",
    )
    resumed: Resumed | None = Field(
        default=None, description="the inner state with which the process has begun; None: that of a round"
    )
    leaves: bool = Field(default=False, description="whether the process ends after it: the next round expects it not")
    data: TrainedData | None = Field(
        default=None, description="the shards of the data that it has trained (`context.shards`); None: it has none"
    )
    place: str = Field(
        default=HOME, pattern=PLACE, description="where it trains; at another place than `home` its values lie there"
    )

    @property
    def sent_norm(self) -> float | None:
        """The L2 norm of what it has sent; None if it is not known."""
        return self.norm if self.sent is None else self.sent

    @property
    def objects(self) -> int | None:
        """How many objects beside the contribution's own hold the values; None: they lie in that one."""
        return self.parts or (None if self.place == HOME else 1)

    def logged_before(self, metric: str) -> float | None:
        """The value of `metric` that was logged in the round before; None if none was, or if that is not known."""
        names = sorted(self.metrics)
        ages = dict(zip(names, self.logged, strict=True)) if len(self.logged) == len(names) else {}
        return self.metrics[metric] if ages.get(metric) == 1 else None


class Exclusion(StoredPart):
    """A contribution that does not count, and why."""

    rank: int = Field(ge=0)
    reason: str


class Finish(StoredPart):
    """The end of a replica whose trainer has returned: it contributes to no round after `round`.

    A continuation calls the trainers again, so a finish holds for one run of a lineage only.
    """

    rank: int = Field(ge=0)
    run: str = Field(max_length=RUN_MAX, description="the run in which the trainer returned")
    round: int = Field(ge=0, le=ROUND_MAX, description="the last round whose result the replica holds")
    how: str = Field(max_length=200, pattern=r"^[\x20-\x7e]*$", description="how the trainer ended, in words")

    @property
    def words(self) -> str:
        """`finished in round 31: its trainer returned`."""
        return f"finished in round {self.round}: {self.how}"


class Commit(StoredDocument):
    """One round's members in the order in which they are reduced.

    A revision above 0 replaces the one before it: it excludes members whose data proved unusable.
    """

    run: str
    round: int = Field(ge=1, le=ROUND_MAX)
    revision: int = Field(default=0, ge=0)
    committed_at: Timestamp = Field(description="UTC by the store's clock, ISO 8601; no decision depends on it")
    count: int = Field(ge=1, description="elements of the parameters")
    exact: int = Field(default=0, ge=0, description="elements at the end that are float32 whatever the codec")
    members: tuple[Member, ...] = Field(min_length=1, description="by ascending rank")
    excluded: tuple[Exclusion, ...] = ()
    excluded_before: tuple[Exclusion, ...] = Field(
        default=(), description="those of the previous round, including what its later revisions excluded"
    )
    excluded_total: int = Field(default=0, ge=0, description="contributions excluded so far, in all rounds")
    absent: tuple[int, ...] = Field(default=(), description="ranks that were expected and uploaded nothing in time")
    arrivals: tuple[float, ...] = Field(
        default=(),
        description="arrival of the members' contributions: seconds after the first, ascending",
    )
    grace_seconds: float = Field(default=0.0, ge=0, description="grace window after the quorum was reached")
    finished: tuple[Finish, ...] = Field(
        default=(), description="replicas that had finished before the round was committed, by ascending rank"
    )
    void: bool = Field(
        default=False,
        description="an amendment leaves fewer contributions than a round needs: the round changes no parameters",
    )
    epochs: tuple[int, ...] = Field(
        description="the latest known claim of each rank, 0 for none; of an elastic run up to the last that has one"
    )
    state: str | None = Field(
        default=None,
        pattern=STATE,
        description="digest of the parameters from which two or more contributions start; None: not known",
    )
    fragments: int = Field(default=1, ge=1, description="into how many fragments the model is cut")
    unit: str = Field(default=DEFAULT_UNIT, pattern=UNIT, description="what the weights count")
    expected_rounds: int | None = Field(
        default=None, ge=1, le=ROUND_MAX, description="how many rounds the trainers expect in all; None: not known"
    )
    samples: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="what has counted so far, in all rounds; None: not known"
    )
    crossed_bytes: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="what has gone between places in the rounds of this run; None: the run is at one, or not known",
    )
    # A version that does not know it divides the mean otherwise. It then finds shards of other sizes, and computes
    # them again from the contributions.
    shards: int | None = Field(
        default=None,
        ge=1,
        le=SHARDS_MAX,
        description="into how many shards the mean is divided; None: by an older rule",
    )
    # A version that does not know it makes shards of these rounds when it replays them, in all replicas alike.
    gathers: bool = Field(
        default=False, description="whether each replica averages the contributions itself; else they share the work"
    )
    # A version that does not know it takes what its own run has between places.
    mean: str | None = Field(
        default=None,
        pattern=rf"^({WHOLE_CODECS})$",
        description="codec of the mean and of what it is made of between places; None: as the run's codec has it",
    )
    pace: Pace | None = Field(default=None, description="of the last rounds; None: not known")
    last: int | None = Field(
        default=None, ge=0, description="the rank whose contribution came last of the members'; None: not known"
    )
    time_use: TimeUse | None = Field(default=None, description="of all replicas until this round; None: not known")
    data: DataProgress | None = Field(
        default=None, description="the shards that had counted before this round; None: the trainers have no shards"
    )

    @property
    def data_after(self) -> DataProgress | None:
        """The shards that have counted with this round. An amendment has other members, and so another result."""
        return None if self.data is None else self.data.after(() if self.void else self.members)

    @property
    def timed(self) -> TimedRound:
        """When the round was committed, and what counted in it. Nothing counts in a void round."""
        weights = {} if self.void else {member.rank: member.weight for member in self.members}
        return TimedRound(self.round, self.committed_at, weights, self.fragments)

    @property
    def counted(self) -> float:
        """What counts in this round: the share of one fragment of each sample, whose other fragments count as well."""
        return sum(self.timed.weights.values()) / self.fragments

    @property
    def waited_for(self) -> int | None:
        """The rank for which the others waited: one that gave nothing in time, or else the last one."""
        return self.absent[0] if self.absent else self.last

    @property
    def data_shown(self) -> EpochShards | None:
        """How far the run is in its data after the round; None where its trainers do not use `context.shards`."""
        after = self.data_after
        return None if after is None else after.shown

    @property
    def named(self) -> set[int]:
        """The ranks that contributed to the round, with usable data or not."""
        return {item.rank for item in self.members} | {item.rank for item in self.excluded}

    @property
    def expected(self) -> set[int]:
        """The ranks that the next round expects: whoever contributed, less those who leave."""
        return self.named - {member.rank for member in self.members if member.leaves}

    @property
    def makers(self) -> tuple[Member, ...]:
        """The members that make the round's mean: those who stay, where some do. The others may be gone by now."""
        return tuple(member for member in self.members if not member.leaves) or self.members

    @property
    def keepers(self) -> tuple[Member, ...]:
        """The members that store what the run keeps: those at home, where the run's bucket is, if there are any."""
        return tuple(member for member in self.members if member.place == HOME) or self.members

    def of_rank(self, rank: int) -> Commit:
        """The commit of a replica that trains by itself (`sweep`), in which it is rank 0, with its rank in the run."""
        alone = [member.model_copy(update={"rank": rank}) for member in self.members[:1]]
        use = None if self.time_use is None else self.time_use.of_replicas(0)
        others: dict[str, object] = {"excluded": (), "excluded_before": (), "absent": (), "finished": (), "epochs": ()}
        return self.model_copy(update={**others, "members": tuple(alone), "pace": None, "last": None, "time_use": use})

    def counted_claim(self, rank: int) -> int | None:
        """The claim under which `rank` has given what counts in the round; None if it has no part in the mean."""
        return None if self.void else next((member.epoch for member in self.members if member.rank == rank), None)

    def epoch_of(self, rank: int) -> int:
        """The latest known claim of `rank`, 0 for none."""
        return self.epochs[rank] if rank < len(self.epochs) else 0

    def names(self, rank: int) -> bool:
        """Whether `rank` contributed to the round, with usable data or not."""
        return rank in self.named

    def finished_in(self, run: str) -> tuple[Finish, ...]:
        """The replicas whose trainers have returned in `run` of the lineage."""
        return tuple(finish for finish in self.finished if finish.run == run)


def commit_bytes_max(replicas: int) -> int:
    """The largest commit of a run of so many replicas that the control plane and clients read, in bytes."""
    return min(_COMMIT_BYTES + _MEMBER_BYTES * replicas, COMMIT_BYTES_MAX)


def commit_round(name: str) -> int | None:
    """The round whose commit has this name below `RunLayout.commits`; None for a name that no commit has."""
    found = _KEY.fullmatch(name)
    return None if found is None else int(found[1])


def parse_commit(body: bytes, uri: str) -> Commit:
    """The commit that is stored at `uri`, whose name says its round.

    Raises:
        DocumentError: it is not a commit, or one of another round.
    """
    commit = Commit.from_json(body, uri)
    if commit.round != commit_round(uri.rpartition("/")[2]):
        raise DocumentError(uri, f"it is a commit of round {commit.round}")
    return commit


def last_round(is_committed: Callable[[int], bool]) -> int:
    """The last committed round, 0 if there is none. Commits have no gaps, so 2 log2(rounds) questions find it."""
    high = 1
    while is_committed(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_committed(middle) else (low, middle)
    return low
