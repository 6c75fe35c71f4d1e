"""The page of a run as a client sees it now."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pydantic import JsonValue

from muster.client.aws.cloud import Cloud
from muster.client.client_errors import NoPlanError, SameRunError
from muster.client.runs.observer import Observer, read_plan
from muster.client.runs.run_status import ReplicaStatus, RunStatus
from muster.client.runs.status_text import queue_text, status_word
from muster.contract import timestamps
from muster.contract.document import canonical_json
from muster.contract.layout import RunLayout
from muster.contract.names import run_name
from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaResult
from muster.report.comparison import ComparedRun, Comparison, compare
from muster.report.page_contents import make_page
from muster.report.page_model import Page, PageInput, ReplicaView
from muster.report.rounds import RoundTable
from muster.report.sweep import SweepRounds

# The tag changes this often even when nothing happens, because times and costs on the page grow.
_TAG_SECONDS = 30


def read_page(cloud: Cloud, run: str) -> bytes | None:
    """The page that the control plane has written of a settled run, or None while there is none."""
    return cloud.objects.read(RunLayout(run).page)


class PageSource:
    """Makes the pages of one run. Looking again asks AWS only for what may have changed."""

    def __init__(self, cloud: Cloud, execution: str) -> None:
        self._cloud = cloud
        self._execution = execution
        self._observer = Observer(cloud, execution)
        self._plan: Plan | None = None
        self._rounds: RoundTable | SweepRounds | None = None
        self.tag = ""
        """Changes with the page: an entity tag for HTTP."""
        self.reason = ""
        """Why the run has ended as it has, at the latest look."""

    def look(self) -> Page:
        """The page now; `tag` changes with it.

        Raises:
            NoPlanError: the run has no plan.
            ClientError: the cloud cannot be reached or refuses.
        """
        status = self._observer.look()
        self.reason = status.reason
        plan = self._plan = self._plan or self._read_plan(status)
        result = self._observer.result
        settled = {replica.rank: replica for replica in result.replicas} if result else {}
        attempts = self._observer.attempts_with_logs()
        replicas = [_replica(one, attempts.get(one.rank, ()), settled.get(one.rank)) for one in status.replicas]
        kind = SweepRounds if plan.spec.trains_apart else RoundTable
        table = self._rounds = self._rounds or kind(plan.spec.replicas, plan.created_at)
        for commit in self._observer.new_commits():
            table.add(commit)
        table.add_last((one.rank, one.round, one.metrics) for one in settled.values())
        # Its seconds grow while nothing happens.
        shown = status.model_dump(mode="json", exclude={"time"})
        content = [shown, [one.model_dump(mode="json") for one in replicas], table.latest]
        age = 0 if status.ended_at else int(time.monotonic() / _TAG_SECONDS)
        self.tag = hashlib.sha256(canonical_json([*content, age])).hexdigest()[:32]
        return make_page(
            PageInput(
                plan=plan,
                state=status.state,
                reason=status.reason if status.behind is None else queue_text(status),
                made_at=timestamps.text(datetime.now(UTC)),
                ended_at=(result.settled_at if result else status.ended_at) if status.state.is_terminal else None,
                replicas=replicas,
                rounds=table.view(self._observer.unreadable_commits),
                parameters_identical=result.parameters_identical if result else None,
                continued_by=status.continued_by,
                model=result.model if result else None,
                model_problem=result.model_problem if result else None,
                findings=status.findings,
                seats=status.seats,
            )
        )

    @property
    def spec(self) -> dict[str, JsonValue]:
        """The run's spec with every default, after a look."""
        return {} if self._plan is None else self._plan.spec.model_dump(mode="json")

    def _read_plan(self, status: RunStatus) -> Plan:
        plan = read_plan(self._cloud, run_name(self._execution))
        if plan is None:
            raise NoPlanError(self._execution, status.reason)
        return plan


def _replica(replica: ReplicaStatus, attempts: tuple[Attempt, ...], settled: ReplicaResult | None) -> ReplicaView:
    return ReplicaView(
        rank=replica.rank,
        state=settled.outcome.value if settled else status_word(replica),
        attempts=attempts,
        round=replica.round,
        metrics=replica.metrics,
        checkpoint_uri=settled.checkpoint_uri if settled else None,
        artifacts=settled.artifacts if settled else None,
        problem=settled.problem if settled else None,
        finished_early=replica.finished_early,
    )


def compare_runs(cloud: Cloud, a: str, b: str) -> Comparison:
    """The runs `a` and `b` side by side: the calls of a page for each.

    Raises:
        SameRunError: `a` is `b`.
        NoPlanError: one of them was refused, or has just started.
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
