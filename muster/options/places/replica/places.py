"""One round over several places, as one process takes part in it (the seam `replica.places`).

| step | over the long way | by |
|---|---|---|
| sum | up: each shard of the place's sum, once | a member of each place but the one that makes the shard |
| mean | - | a member of the place that makes it: at home, if a member of home stays |
| copy | down: each shard of the mean, once | the same member that has stored its sum; the others read the copy |

Between places so move, for each of R of them, as many bytes up and down as a mean has (home, where all of them meet,
has R - 1 times as many; a round of which home has no member 2(R - 1)/R times down), whatever the number of replicas.
Beside its bytes a round waits some seven times for an answer over the long way: five times to agree, as at one place,
then for the first sum and the first shard of the mean. Shards go their ways side by side.

A place is late whose sum has not come within the round's patience. Then a process of another place states, in place
of a shard of the mean, that the round is made without it: the first one to store the shard or a statement decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from muster.contract.run.commit import HOME, Commit
from muster.options.places.replica.place_shards import Copies, MeanOfPlaces
from muster.options.places.replica.roles import Roles
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec, Payload
from muster.replica.free_memory import pages
from muster.replica.replica_errors import RoundGoneError
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.reduced_shards import Look
from muster.replica.rounds.reduction import Reduction
from muster.replica.rounds.round_context import OfferedPlaces, Polling, RoundContext, log
from muster.replica.rounds.weighted_mean import Rejection
from muster.replica.store.transport import Store
from muster.replica.wire.blocks import CONNECTIONS, Blocks

# Who takes over sooner for a carrier that is only slow moves its bytes over the long way once more.
TAKEOVER_FLOOR_SECONDS = 4.0
# For so many times the time that others get to take a shard over a place's sum is waited for.
PATIENCE_STEPS = 3
# And for so many times as long as it took in the rounds before. A slow way is no dark place.
PATIENCE_FACTOR = 2.0
ROUNDS_SEEN = 16


@dataclass(frozen=True)
class RoundsOfPlaces:
    """How the rounds of a process at `place` become means.

    Attributes:
        near: the bucket of the place; at home that of the run.
        far: the codec of what crosses from one place to another; None: that of the run, as a round at one place has it.
        waits: for how long the sums of other places were waited for in the last rounds, in seconds.
    """

    place: str
    near: Store
    far: Codec | None = None
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=ROUNDS_SEEN))

    def coded(self, far: str) -> RoundsOfPlaces:
        """With the codec `far` of what crosses from one place to another; empty: that of the run."""
        return replace(self, far=codec_named(far) if far else None)

    def crossed(self, commit: Commit, codec: Codec) -> float:
        """The bytes that a round sends from place to place, as this module's docstring has them."""
        blocks = Blocks(commit.count, self.far or codec.for_mean(len(commit.members)), commit.exact)
        places = {member.place for member in commit.members}
        down = 1.0 if HOME in places else 2 * (len(places) - 1) / len(places)
        return len(places - {HOME}) * (1 + down) * blocks.number * blocks.record_bytes

    def reduction(
        self, context: RoundContext, commit: Commit, mine: Contribution | None, own: Contribution | None
    ) -> Reduction:
        """This process's part in a round."""
        return TwoLevels(self, context, commit, mine, own)


class TwoLevels(Reduction):
    """One revision of one round over several places."""

    _floor = TAKEOVER_FLOOR_SECONDS

    def __init__(
        self,
        places: RoundsOfPlaces,
        context: RoundContext,
        commit: Commit,
        mine: Contribution | None,
        own: Contribution | None,
    ) -> None:
        near = None if places.place == HOME else places.near
        self._mean = MeanOfPlaces(context, commit, places.place, near)
        super().__init__(context, commit, mine, own, self._mean)
        self._places, self._place, self._roles = places, places.place, Roles(commit)
        self._copies = None if near is None else Copies(context, commit, self._place, near)
        self._values = own
        member = None if mine is None else mine.header.member
        self._rank = member.rank if member is not None and member in commit.members else None
        self._distances = [self._turn(shard) for shard in range(self._mean.number)]
        self._known: set[tuple[str, int]] = set()  # sums that are stored
        self._ready: dict[int, float] = {}  # when all sums of a shard were seen
        self._brought: dict[int, float] = {}  # when a shard of the mean was seen in the run's bucket
        self._looked: set[int] = set()  # shards of which a copy was looked for
        self._polling: Polling | None = None
        self._is_over = False  # the next round is committed: nobody waits for others any more
        self._heard = self._started  # when the last sum of another place was seen

    def gather(self, polling: Polling) -> None:
        """As at one place; learns how long the others' sums take."""
        self._polling = polling
        super().gather(polling)
        if self._ready:
            self._places.waits.append(max(self._ready.values()) - self._started)

    def _turn(self, shard: int) -> int:
        ranks = [member.rank for member in self._roles.turns(self._place, shard)]
        return ranks.index(self._rank) if self._rank in ranks else max(1, len(ranks))

    def _distance(self, shard: int) -> int:
        return self._distances[shard]

    @property
    def _made_at_once(self) -> int:
        # Each waits for the long way.
        return CONNECTIONS

    def _makes_mean(self, shard: int) -> bool:
        """Whether this process's place makes a shard of the mean; else it gives its sum, if it has a part in it."""
        return self._roles.maker(shard) == self._place

    def _begin(self, own: list[int]) -> list[int]:
        """Store this place's sums. The mean is made once those of the others are there: now, if there are none."""
        if len(self._roles.places) == 1:
            return super()._begin(own)
        given = [shard for shard in own if not self._makes_mean(shard)]
        # Its keys do not depend on the other places: after an amendment it may be there.
        self._make_all(self._not_stored(given) if self._commit.revision else given)
        self._known.update((self._place, shard) for shard in given)
        return []

    def _make(self, shard: int, room: Callable[[int], Payload] = pages) -> None:
        if self._makes_mean(shard):
            self._own = self._values if self._distance(shard) == 0 else None
            super()._make(shard, room)
        else:
            self._make_sum(shard, room)

    def _make_sum(self, shard: int, room: Callable[[int], Payload]) -> None:
        """Store this place's sum of a shard.

        Raises:
            Rejection: it cannot be made. Who reads the mean alone finds that stated in its place.
        """
        try:
            self._mean.sums[self._place].make(shard, lambda *_: None, self._own, room)
        except Rejection as answer:
            self._mean.say(shard, self._sink(shard), answer.rejected)

    def _help(self, missing: list[int], *, timed_out: bool) -> list[int]:
        mine = [shard for shard in missing if self._is_maker(shard)]
        due = [shard for shard in mine if timed_out or self._distance(shard) == 0 or self._is_due(shard)]
        means = [shard for shard in due if self._makes_mean(shard)]
        self._look(means, self._others)
        made = [shard for shard in means if self._is_ready(shard, timed_out=timed_out)]
        self._make_all(made)
        if self._place in self._roles.places:
            sums = [shard for shard in due if not self._makes_mean(shard)]
            self._make_all(self._not_stored(sums))
            self._known.update((self._place, shard) for shard in sums)
        left = [shard for shard in missing if shard not in made]
        # One that another process of the replica makes, where there is no other: that process may have been told.
        watched = next((shard for shard in left if shard in mine), next(iter(left), None))
        # All shards come from the same places: one shows whether one of them is late.
        return [shard for shard in left if shard != watched or not self._give_up(shard, timed_out=timed_out)]

    @property
    def _others(self) -> list[str]:
        return [place for place in self._roles.places if place != self._place]

    def _look(self, shards: list[int], places: list[str]) -> None:
        """Look for the sums of `places` that have not been seen."""
        unknown = [(place, shard) for shard in shards for place in places if (place, shard) not in self._known]
        stored = self._context.side_by_side(lambda sum_: self._mean.sums[sum_[0]].is_stored(sum_[1]), unknown)
        found = {sum_ for sum_, is_there in zip(unknown, stored, strict=True) if is_there}
        now = self._context.clock.monotonic()
        self._known |= found
        if any(place != self._place for place, _ in found):
            self._heard = now
            if self._polling is not None:
                # The others' sums come one after another.
                self._polling.reset()
        for shard in shards:
            if all((place, shard) in self._known for place in places):
                self._ready.setdefault(shard, now)

    def _not_stored(self, shards: list[int]) -> list[int]:
        """Those of `shards` whose sum of this place is not stored."""
        self._look(shards, [self._place])
        return [shard for shard in shards if (self._place, shard) not in self._known]

    def _is_ready(self, shard: int, *, timed_out: bool) -> bool:
        """Whether this process makes a shard of the mean now: its sums are there, and nobody before it has made it."""
        if shard not in self._ready:
            return False
        passed = self._context.clock.monotonic() - self._ready[shard]
        return timed_out or passed >= self._step * self._distance(shard)

    def _give_up(self, shard: int, *, timed_out: bool) -> bool:
        """Whether a missing shard of the mean is there after all, because this process says that a place is late.

        Where sums are missing those who wait for them to make the mean say so, and others only if nobody does.

        Raises:
            Rejection: a place is late.
            RoundGoneError: the round is over, and its data are deleted.
        """
        clock, maker = self._context.clock, self._roles.maker(shard)
        if not timed_out and clock.monotonic() < self._started + self._step:
            return False
        self._follow()
        givers = [place for place in self._others if place != maker]
        self._look([shard], givers)
        late = [place for place in givers if (place, shard) not in self._known]
        since = self._heard if late or not givers else self._ready[shard]
        is_first = self._rank is not None and (not late or maker == self._place)
        is_made_here = not late and maker == self._place
        # Another process of the replica may be gone, and the shard deleted with its round.
        if is_made_here and self._is_maker(shard):
            return False
        patience = self._patience if is_first else 2 * self._patience
        if not timed_out and clock.monotonic() < since + patience:
            return False
        if self._was_complete():
            if self._read_all([shard]):
                self._follow()
                raise RoundGoneError(self._commit.round)
            return True
        if is_made_here:
            return False
        log.warning("round=%d event=late-place shard=%d places=%s", self._commit.round, shard, late or [maker])
        return self._mean.say(shard, self._sink(shard), late=tuple(late or [maker])) is Look.READ

    @property
    def _patience(self) -> float:
        waits = self._places.waits
        grace = self._context.quorum.grace_seconds
        return max(grace, PATIENCE_STEPS * self._step, PATIENCE_FACTOR * max(waits, default=0.0))

    def _read_all(self, shards: list[int]) -> list[int]:
        """As at one place; but other places wait for what this process makes of the mean, so that is made first."""
        own = [shard for shard in shards if self._distance(shard) == 0 and self._owns(shard)]
        if not own or len(self._roles.places) == 1:
            return super()._read_all(shards)
        read = set(own) - set(super()._read_all(own))
        return [shard for shard in shards if shard not in read]

    def _owns(self, shard: int) -> bool:
        return self._makes_mean(shard) and self._is_maker(shard)

    def _read(self, shard: int) -> Look:
        """From the place's copies. The owner brings the shard; another process does where the copy is late or damaged.

        Who is no member of the round does not wait for it. And the owner may be late itself: it looks for a copy once.
        """
        if self._copies is None:
            return super()._read(shard)
        is_carrier = self._distance(shard) == 0 and self._is_maker(shard)
        if not is_carrier or shard not in self._looked:
            self._looked.add(shard)
            look = self._read_of(self._copies, shard)
            if look is Look.READ or (look is Look.MISSING and not is_carrier and not self._brings(shard)):
                return look
        if not self._is_maker(shard):
            return super()._read(shard)
        return self._mean.carry(shard, self._sink(shard))

    def _brings(self, shard: int) -> bool:
        """Whether those before this process have had their time to bring a shard that is in the run's bucket."""
        if self._rank is None or self._is_over:
            return True
        if not self._is_due(shard):
            return False
        now = self._context.clock.monotonic()
        if shard not in self._brought and self._mean.is_stored(shard):
            self._brought[shard] = now
        return shard in self._brought and now >= self._brought[shard] + self._step * max(1, self._distance(shard))

    def _was_complete(self) -> bool:
        self._is_over = self._is_over or super()._was_complete()
        return self._is_over

    def _stored(self, shards: list[int]) -> list[int]:
        if self._copies is None:
            return super()._stored(shards)
        reads_home = self._rank is None or self._is_over
        home = [shard for shard in shards if self._distance(shard) == 0 or reads_home or self._is_due(shard)]
        near = [shard for shard in shards if shard not in home]
        # A listing at home costs one more way there.
        found = {*(super()._stored(home) if len(home) > CONNECTIONS else home), *self._copies.stored(near)}
        return [shard for shard in shards if shard in found]


OFFER = OfferedPlaces(RoundsOfPlaces)
