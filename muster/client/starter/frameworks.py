"""The frameworks that a new trainer can be written for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Framework(StrEnum):
    """How the option of `muster init` spells them."""

    NUMPY = "numpy"
    PYTORCH = "pytorch"
    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    TORCHFT = "torchft"


class Kind(StrEnum):
    """What a replica runs."""

    FUNCTION = "function"
    SCRIPT = "script"


@dataclass(frozen=True)
class Starter:
    """A trainer to start with."""

    words: str
    kwargs: dict[str, int]
    requirements: tuple[str, ...] = ()
    """What the images of AWS for PyTorch do not have, in the versions that Muster is tested with."""


_ROUNDS = {"rounds": 20, "steps_per_round": 50}
STARTERS: dict[Framework, Starter] = {
    Framework.NUMPY: Starter("arrays and a loop of your own", _ROUNDS),
    Framework.PYTORCH: Starter("a PyTorch loop of your own", _ROUNDS),
    Framework.HUGGINGFACE: Starter(
        "the Trainer of transformers",
        {"max_steps": 200, "steps_per_round": 20},
        ("accelerate==1.15.0", "transformers==5.23.0"),
    ),
    Framework.LIGHTNING: Starter(
        "Lightning's Trainer", {"max_steps": 1_000, "steps_per_round": 50}, ("lightning==2.6.6",)
    ),
    Framework.TORCHFT: Starter("torchft's DiLoCo", _ROUNDS, ("torchft-nightly==2026.10.26",)),
}
