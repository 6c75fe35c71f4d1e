"""The last rounds that a process has seen: whom the next one expects, how long to wait, and whether there is one."""

from __future__ import annotations

from collections import deque

from muster.contract.run.commit import Commit
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.parts.link import by_first
from muster.replica.replica_errors import ParametersError, RunEndedError
from muster.replica.rounds.commit_store import read_last_revision
from muster.replica.rounds.grace_window import ROUNDS_SEEN
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.seat import Seat
from muster.replica.statistics.progress import Progress

WAITS_SEEN = 3  # the shortest of the last waits says before when no look is worth while
# The last to contribute waits for a look, for its commit, and for others whose requests took longer.
NEAR_LATENCIES = 4.0


class SeenRounds:
    """What one process has seen of its run."""

    def __init__(self, context: RoundContext, seat: Seat, progress: Progress) -> None:
        self._context, self._seat, self._progress = context, seat, progress
        self._commits: deque[Commit] = deque(maxlen=ROUNDS_SEEN)
        self._waits: deque[float] = deque(maxlen=WAITS_SEEN)
        self._has_joined = False
        self.seen_at = context.clock.monotonic()
        """When the last commit was seen, in seconds of the process's clock."""
        self.latency = 0.0
        """How long the look before the last contribution took, in seconds."""
        self.newest: Commit | None = None
        """The last commit that was seen."""
        self.last: Commit | None = None
        """The commit of the run's last round, once there is one."""

    @property
    def commits(self) -> tuple[Commit, ...]:
        """Those of the last rounds, oldest first."""
        return tuple(self._commits)

    @property
    def expected_wait(self) -> float:
        """For so long, in seconds, the process has waited for the others at least in the last rounds."""
        return min(self._waits, default=0.0)

    @property
    def is_near(self) -> bool:
        """Whether this process may well be the last to contribute: it has hardly waited for the others before."""
        return self.expected_wait <= NEAR_LATENCIES * self.latency

    @property
    def epoch(self) -> int:
        """The claim under which this process contributes."""
        return self._seat.epoch

    def counted(self, round_: int) -> int | None:
        """The claim of this replica's contribution that counts in `round_`, the last round that was seen.

        None if none counts; also for any other round.
        """
        commit = self._commits[-1] if self._commits else None
        return None if commit is None or commit.round != round_ else commit.counted_claim(self._seat.rank)

    def counted_back(self, round_: int) -> list[tuple[int, int]]:
        """The rounds that were seen, from `round_` back, each with the claim of this replica's contribution that counts
        in it; 0 if none does. `round_` alone if it is not the last one that was seen."""
        found: list[tuple[int, int]] = []
        for commit in reversed(self._commits):
            if commit.round != round_ - len(found):
                break
            found.append((commit.round, commit.counted_claim(self._seat.rank) or 0))
        return found or [(round_, 0)]

    def refuse_second_join(self) -> None:
        """Return if this process has not joined the run yet.

        Raises:
            ParametersError: it has.
        """
        if self._has_joined:
            message = (
                "This process has already joined the rendezvous: put all parameters into one DiLoCo, and train with "
                "one Trainer."
            )
            raise ParametersError(message)

    def join(self, context: RoundContext, round_: int) -> None:
        """The process takes part from the round after `round_` on; raises as `refuse_second_join`."""
        self.refuse_second_join()
        self._has_joined = True
        self.remember(context, round_)

    def remember(self, context: RoundContext, round_: int) -> None:
        """Begin anew at `round_`: the next round expects that round's members."""
        self._commits.clear()
        self.saw()
        if round_ and (commit := by_first(context.link, lambda: read_last_revision(context, round_))) is not None:
            self.note(commit)

    def saw(self) -> None:
        """The process sees a commit now."""
        self.seen_at = self._context.clock.monotonic()

    def waited(self, seconds: float) -> None:
        """The process has waited so long for a commit after its contribution."""
        self._waits.append(seconds)

    def note(self, commit: Commit) -> None:
        """The next round expects the members of `commit`. If it is the last one, the trainer is asked to return:
        now, or by a front end after the same inner step in all processes of the replica.

        The commit decides, so all replicas that are left end with the same round, late and restarted ones included.
        """
        context = self._context
        self._commits.append(commit)
        self.newest = commit
        self._progress.committed(commit.round)
        if context.on_early_finish is OnEarlyFinish.STOP and commit.finished_in(context.trained_by):
            self.last = commit
            context.stops.ask_trainer()
            log.warning("round=%d event=run-ended on_early_finish=stop", commit.round)

    @property
    def has_ended(self) -> bool:
        """Whether the run has no further round."""
        return self.last is not None

    def check_not_ended(self) -> None:
        """Return if the run has another round.

        Raises:
            RunEndedError: a replica has finished, the others have ended their round, and by the run's rule it is the
                last one (`on_early_finish: stop`).
        """
        if self.last is not None:
            raise RunEndedError(self.last.round, self.last.finished_in(self._context.trained_by))
