"""The starters that `muster init` writes, each with arguments for two rounds."""

import pytest

_LOOP = {"rounds": 2, "steps_per_round": 2}
_TRAINER = {"max_steps": 4, "steps_per_round": 2}
STARTERS = {"numpy": _LOOP, "pytorch": _LOOP, "torchft": _LOOP, "huggingface": _TRAINER, "lightning": _TRAINER}

each_starter = pytest.mark.parametrize(("framework", "kwargs"), STARTERS.items(), ids=STARTERS)
