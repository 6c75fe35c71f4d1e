"""The control plane of a stack with a cluster, over the AWS in memory."""

from collections.abc import Iterator

import pytest

from tests.memory.harness import ControlHarness


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness(clusters=True).installed() as harness:
        yield harness
