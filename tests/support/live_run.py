"""A run that makes progress on request, for the server of live pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench.sample_run import sample_run
from muster.client.cli.page_server import PageServer
from muster.report.page_contents import make_page
from muster.report.page_model import Page
from tests.support.serving import serving


class LiveRun:
    """A `PageSource` for a `PageServer`; the test decides when its page changes."""

    def __init__(self, replicas: int = 2, rounds: int = 3) -> None:
        self.replicas = replicas
        self.looks = 0
        self.tag = ""
        self.trouble: Exception | None = None
        self.go_on(rounds)

    def go_on(self, rounds: int, state: str = "running") -> None:
        """Set the number of rounds that the run has committed."""
        page_input = sample_run(self.replicas, rounds)
        going = state == "running"
        page_input = replace(page_input, state=state, reason="", ended_at=None if going else page_input.ended_at)
        self._now = page_input, f"{state}-{rounds}"  # one assignment, because another thread reads it

    def look(self) -> Page:
        self.looks += 1
        if self.trouble:
            raise self.trouble
        page_input, self.tag = self._now
        return make_page(page_input)


@contextmanager
def served(run: LiveRun) -> Iterator[PageServer]:
    """A server of the run's page that answers while the context lasts."""
    with serving(PageServer(run)) as server:
        yield server
