"""What the tests of the client share: a stack's control plane over an AWS in memory, in virtual time."""

from collections.abc import Iterator

import pytest

from tests.memory.harness import ControlHarness


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness
