"""How a replica can fail: one error type for each cause."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.errors import MusterError
from muster.contract.exits import MORE_MEMORY, ReplicaExit
from muster.contract.run.commit import Finish


class InputError(MusterError):
    """The environment or the run document cannot be used. Lists everything that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RendezvousError(MusterError):
    """The round cannot be finished: no quorum before the time-out, or an object in the bucket is invalid."""


class RoundGoneError(RendezvousError):
    """The round's data was deleted, because a snapshot covers it."""

    def __init__(self, round_: int) -> None:
        super().__init__(f"The contributions to round {round_} have been deleted.")


class OtherStateError(RendezvousError):
    """This replica's parameters differ from those of the run. Its rerun loads the run's."""

    def __init__(self, round_: int, own: str, state: str) -> None:
        super().__init__(
            f"The parameters of this replica before round {round_} have the digest {own}, those of the run {state}: "
            "its machine may be faulty. A rerun loads the run's parameters."
        )


class GroupError(RendezvousError):
    """The processes of this replica cannot work together: they do not find each other, or one of them has ended."""


class HistoryGoneError(RendezvousError):
    """Rounds that were committed are no longer stored. Without them training would begin anew, unnoticed."""

    def __init__(self, uri: str, found: str) -> None:
        super().__init__(
            f"{uri} no longer holds the history of this run: {found}. It was deleted, so the run cannot be continued: "
            "start a new run without resume_from."
        )


class FencedError(MusterError):
    """A newer process holds this rank: this one must end."""

    def __init__(self, rank: int, attempt: int, incarnation: int) -> None:
        super().__init__(
            f"Attempt {attempt}, incarnation {incarnation} of rank {rank} is superseded: "
            "a newer process has claimed the rank."
        )


class StoppedError(MusterError):
    """The replica was asked to stop (SIGTERM)."""

    def __init__(self) -> None:
        super().__init__("The replica was asked to stop (SIGTERM).")


class WatchError(MusterError):
    """A rule that watches the training was met, and the spec says that the attempt ends."""

    def __init__(self, code: ReplicaExit, text: str) -> None:
        self.exit_code = code
        super().__init__(text)


class RunEndedError(MusterError):
    """The run has ended by its own rule, because a replica has finished early. No failure: the replica succeeds."""

    def __init__(self, round_: int, finished: Sequence[Finish]) -> None:
        self.round = round_
        causes = "; ".join(f"replica {item.rank} finished in round {item.round}: {item.how}" for item in finished)
        super().__init__(f"Round {round_} was the last one of the run (on_early_finish: stop): {causes}.")


class ParametersError(MusterError):
    """An argument of a front end cannot be used, or the model is not the run's. Says what is allowed."""


class AlgorithmError(MusterError):
    """The algorithm's settings are invalid, or differ from the run's."""


class DivergedError(MusterError):
    """This replica's contribution is unusable, and the round has no quorum without it."""


class TrainerError(MusterError):
    """The user's function failed."""


class OutOfMemoryError(MusterError):
    """The machine or its GPU is out of memory."""

    def __init__(self, what: str) -> None:
        # The remedy comes first: SageMaker truncates long reasons.
        super().__init__(f"{MORE_MEMORY.capitalize()}. {what}")
