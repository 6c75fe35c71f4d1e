"""A trainer's position in its data, which its checkpoints carry."""

from typing import Any


class DataPosition:
    """Draws one item after the other."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at the position of `state_dict`."""
        self.position = state_dict["position"]

    def draw(self) -> int:
        """The next item, from 0."""
        self.position += 1
        return self.position - 1
