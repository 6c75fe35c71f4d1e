"""The attacks of a few seconds. `python -m tests.attacks` tries all of them."""

import pytest

from tests.attacks.attempts import Tally
from tests.attacks.classes import SHORT


@pytest.mark.parametrize("name", SHORT)
def test_no_attack_succeeds(name: str) -> None:
    tally = Tally(SHORT[name]())
    assert tally.wrong == []
    assert tally.attacks > 40
