"""The weight of each fragment's pseudo-gradient: the samples, or the inner steps, that it stands for."""

from __future__ import annotations

from muster.replica.rounds.exchange import checked_samples


class FragmentWeights:
    """Counts since each fragment was last exchanged.

    torchft exchanges one fragment after another. A replica that joins between two of them has trained those that come
    first for less than the others have, and they count for less.
    """

    def __init__(self, fragments: int) -> None:
        self._samples = [0.0] * fragments
        self._steps = [0] * fragments
        self._has_samples = False

    def add_samples(self, samples: float) -> None:
        """Count samples for all fragments. From then on they are the weights.

        Raises:
            ParametersError: negative, infinite or NaN.
        """
        self._has_samples = True
        checked = checked_samples(samples)
        self._samples = [counted + checked for counted in self._samples]

    def add_step(self) -> None:
        """Count an inner step for all fragments."""
        self._steps = [counted + 1 for counted in self._steps]

    def take(self, fragment: int) -> float:
        """The weight of a fragment that is exchanged now; its count starts again."""
        weight = self._samples[fragment] if self._has_samples else float(self._steps[fragment] or 1)
        self._samples[fragment], self._steps[fragment] = 0.0, 0
        return weight

    def clear(self) -> None:
        """The local progress of all fragments is dropped."""
        self._samples = [0.0] * len(self._samples)
        self._steps = [0] * len(self._steps)
