"""The control plane over the AWS in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.memory.harness import ControlHarness


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    """Every call of AWS is sent once: a fault reaches the function that called."""
    with ControlHarness().installed() as harness:
        yield harness
