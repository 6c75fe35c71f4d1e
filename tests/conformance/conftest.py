"""Every scenario of this folder runs against the AWS in memory and against the embedded cloud."""

import pytest

from tests.conformance.backends import Backend, EmbeddedBackend, MemoryBackend
from tests.support.workshop import Workshop


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
