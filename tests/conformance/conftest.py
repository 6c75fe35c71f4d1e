"""Every scenario of this folder runs against the AWS in memory and against the embedded cloud."""

from __future__ import annotations

import pytest

from tests.conformance.backends import Backend, EmbeddedBackend, MemoryBackend
from tests.support.workshop import Workshop

_MARK = "local_differs"


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark of what the embedded cloud does otherwise than AWS."""
    config.addinivalue_line("markers", f"{_MARK}(how): the scenario fails on the embedded cloud, and must; else unmark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A known difference is expected, and only on the embedded cloud: once it is mended, the test fails."""
    for item in items:
        mark = item.get_closest_marker(_MARK)
        if mark is not None and isinstance(item, pytest.Function) and item.callspec.params["backend"] == "embedded":
            item.add_marker(pytest.mark.xfail(strict=True, raises=(AssertionError, KeyError), reason=mark.args[0]))


@pytest.fixture(scope="session")
def embedded(workshop: Workshop) -> EmbeddedBackend:
    """The embedded cloud of the session."""
    return EmbeddedBackend(workshop)


@pytest.fixture(params=["memory", "embedded"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """One cloud, then the other; the one in memory is fresh."""
    if request.param == "memory":
        return MemoryBackend()
    found: Backend = request.getfixturevalue("embedded")
    return found


@pytest.fixture
def memory() -> MemoryBackend:
    """For scenarios that need virtual time or the test's hand."""
    return MemoryBackend()
