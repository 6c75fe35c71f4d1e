"""The choices of a schedule that is told, not drawn."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tests.simulation.draws import Draws

T = TypeVar("T")


class Told(Draws):
    """Every choice is plain, but for those that are told."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(0, only=())
        self._told = told

    def pick(self, name: str, options: Sequence[T]) -> T:
        return self._told.get(name, options[0])

    def chance(self, name: str, probability: float) -> bool:
        return bool(self._told.get(name, False))
