"""Two runs of a stack, read and compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from muster.client.aws.cloud import Cloud
from muster.client.client_errors import SameRunError
from muster.client.runs.live_page import PageSource
from muster.report.comparison import ComparedRun, Comparison, compare


def compare_runs(cloud: Cloud, a: str, b: str) -> Comparison:
    """The runs `a` and `b` side by side: the calls of a page for each.

    Raises:
        SameRunError: `a` is `b`.
        NoPlanError: one of them was refused, or has just started.
        UnknownRunError: there is no such run.
        ClientError: AWS cannot be reached or refuses.
    """
    if a == b:
        raise SameRunError(a)
    with ThreadPoolExecutor(max_workers=2) as pool:
        before, after = pool.map(lambda run: _read(cloud, run), (a, b))
    return compare(before, after)


def _read(cloud: Cloud, run: str) -> ComparedRun:
    source = PageSource(cloud, run)
    page = source.look()
    return ComparedRun(page=page, reason=source.reason, spec=source.spec)
