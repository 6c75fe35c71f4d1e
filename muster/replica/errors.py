"""How a replica can fail, one type per way."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.errors import MusterError
from muster.contract.run.exits import MORE_MEMORY


class InputError(MusterError):
    """The environment or the run document cannot be used. Carries everything that is wrong at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RendezvousError(MusterError):
    """The round cannot be finished: no quorum in time, or the bucket holds what it must not."""


class RoundGoneError(RendezvousError):
    """The round's data are deleted: everyone in time has passed it, and a snapshot covers it."""

    def __init__(self, round_: int) -> None:
        super().__init__(f"The contributions to round {round_} are deleted.")


class FencedError(MusterError):
    """A newer process carries this rank: whatever this one still does is not wanted."""

    def __init__(self, rank: int, attempt: int, incarnation: int) -> None:
        super().__init__(
            f"Attempt {attempt}, incarnation {incarnation} of rank {rank} is superseded: a newer process carries it."
        )


class StoppedError(MusterError):
    """The replica was asked to stop (SIGTERM) while it waited for the others."""

    def __init__(self) -> None:
        super().__init__("The replica was asked to stop (SIGTERM).")


class ParametersError(MusterError):
    """The trainer's parameters are not what this run can train."""


class AlgorithmError(MusterError):
    """The settings of the training contradict themselves, or those of the run."""


class DivergedError(MusterError):
    """The trainer's own contribution is unusable and the round cannot do without it."""


class TrainerError(MusterError):
    """The user's function failed."""


class OutOfMemoryError(MusterError):
    """The machine, or its GPU, has no memory left."""

    def __init__(self, what: str) -> None:
        # What helps comes first: SageMaker cuts a reason at its end.
        super().__init__(f"{MORE_MEMORY.capitalize()}. {what}")
