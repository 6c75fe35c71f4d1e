"""The control plane over the AWS in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.memory.harness import ControlHarness
    from tests.support.control_steps import Row


def _installed(**options: Any) -> AbstractContextManager[ControlHarness]:
    from tests.memory.harness import ControlHarness  # noqa: PLC0415 - all tests load this module, and few need that

    return ControlHarness(**options).installed()


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    """Every call of AWS is sent once: a fault reaches the function that called."""
    with _installed() as harness:
        yield harness


@pytest.fixture
def row(subtests: pytest.Subtests) -> Row:
    """A row of a table: it has a cloud of its own, and is named where it fails."""

    @contextmanager
    def row(name: object, **options: Any) -> Iterator[ControlHarness]:
        with subtests.test(str(name)), _installed(**options) as harness:
            yield harness

    return row
