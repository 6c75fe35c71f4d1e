"""Reports that a round misses a rank on a cluster, or of a run with places: nothing else may say so.

A notice is one small object (`contract/run/notices.py`), written once for a rank and a round, by the process
that is first. It wakes the control plane, which looks at the job. Nothing waits for it, and nothing depends on it: a
notice that cannot be written is not repeated after its request's own tries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from muster.contract.errors import MusterError
from muster.contract.run.notices import Notice, NoticeKind
from muster.replica.store.transport import Store, create_once

RANKS_MAX = 20
"""How many notices a round may have from one process: the control plane sees the others when it looks."""

log = logging.getLogger("muster.replica")


@dataclass(frozen=True)
class Suspicions:
    """The ranks that are reported, and where notices of them are written.

    Attributes:
        store: of the run's notices; None: nothing is reported.
        run: the run to which the ranks belong.
        spans: the ranks, as first and last of each span.
    """

    store: Store | None = None
    run: str = ""
    spans: tuple[tuple[int, int], ...] = ()

    def report(self, pool: Executor, round_: int, missing: Iterable[int]) -> None:
        """Report those among the ranks of `missing`; returns at once."""
        if self.store is None:
            return
        ranks = [rank for rank in missing if any(first <= rank <= last for first, last in self.spans)]
        for rank in ranks[:RANKS_MAX]:
            pool.submit(partial(self._write, self.store, round_, rank))

    def _write(self, store: Store, round_: int, rank: int) -> None:
        notice = Notice(self.run, NoticeKind.MISSING, rank, None, str(round_))
        try:
            if create_once(store, notice.name, b'{"version":1}\n'):
                log.warning("round=%d event=missing-reported rank=%d", round_, rank)
        except MusterError as error:
            log.info("round=%d event=missing-not-reported rank=%d reason=%r", round_, rank, str(error))


NO_SUSPICIONS = Suspicions()
"""Where no rank is reported."""
