"""The page of a run as a client sees it now."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from muster.client.aws.cloud import Cloud
from muster.client.aws.reported import Job
from muster.client.errors import NoPlanError
from muster.client.runs.observer import Observer
from muster.client.runs.run_status import ReplicaStatus, RunStatus, is_failure
from muster.client.runs.status_text import queue_text, status_word
from muster.contract import timestamps
from muster.contract.document import canonical_json
from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.names import JobName, run_name
from muster.contract.run.attempt import NOT_CREATED, Attempt, requested_type
from muster.contract.run.commit import Commit
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaResult, Result
from muster.report.page_contents import PageInput, make_page
from muster.report.page_model import Page, ReplicaView
from muster.report.rounds import RoundTable, chosen

# The limit keeps one refresh cheap when many jobs change at once; the next refreshes describe the rest.
_DETAILS_PER_LOOK = 100
_PARALLEL = 8
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
        self._rounds: RoundTable | None = None
        self._last = ""
        self.tag = ""
        """Changes with the page: an entity tag for HTTP."""

    def look(self) -> Page:
        """The page now; `tag` changes with it.

        Raises:
            NoPlanError: the run has no plan.
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        status = self._observer.look()
        plan = self._plan = self._plan or self._read_plan(status)
        result = self._observer.result
        jobs = sorted(self._observer.jobs, key=lambda job: not is_failure(job))
        self._observer.details.fetch(jobs, _DETAILS_PER_LOOK)
        replicas = self._replicas(plan, status, result)
        table = self._read_rounds(plan)
        content = [status.model_dump(mode="json"), [one.model_dump(mode="json") for one in replicas], table.latest]
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
                rounds=table.view(),
                parameters_identical=result.parameters_identical if result else None,
                continued_by=status.continued_by,
            )
        )

    def _read_plan(self, status: RunStatus) -> Plan:
        key = RunLayout(run_name(self._execution)).plan
        body = self._cloud.objects.read(key)
        if body is None:
            raise NoPlanError(self._execution, status.reason)
        return Plan.from_json(body, key)

    def _replicas(self, plan: Plan, status: RunStatus, result: Result | None) -> list[ReplicaView]:
        jobs: dict[int, dict[int, Job]] = {}
        for job in self._observer.jobs:
            jobs.setdefault(job.rank, {})[job.attempt.attempt] = job
        settled = {replica.rank: replica for replica in result.replicas} if result else {}
        return [self._replica(plan, one, jobs.get(one.rank, {}), settled.get(one.rank)) for one in status.replicas]

    def _replica(
        self, plan: Plan, replica: ReplicaStatus, jobs: dict[int, Job], settled: ReplicaResult | None
    ) -> ReplicaView:
        known = {attempt.attempt: attempt for attempt in settled.attempts} if settled else {}
        spec = plan.spec.of_rank(replica.rank)
        attempts: list[Attempt] = []
        for number in range(1, max([*jobs, *known], default=0) + 1):
            name = JobName(plan.place.job_prefix, plan.run, replica.rank, number)
            job = jobs.get(number)
            attempt = Attempt(attempt=number, job=str(name), secondary=NOT_CREATED)
            if job is not None:
                attempt = self._observer.details.get(job).attempt
            if number in known:
                attempt = attempt.merged(known[number])
            if attempt.was_created and attempt.instance_type is None:
                attempt = attempt.model_copy(update={"instance_type": requested_type(spec, attempts)})
            attempts.append(attempt)
        if replica.waiting_for is not None:
            number = len(attempts) + 1
            name = JobName(plan.place.job_prefix, plan.run, replica.rank, number)
            attempts.append(
                Attempt(attempt=number, job=str(name), secondary=NOT_CREATED, failure_class=replica.waiting_for)
            )
        return ReplicaView(
            rank=replica.rank,
            state=settled.outcome.value if settled else status_word(replica),
            attempts=tuple(attempts),
            round=replica.round,
            metrics=replica.metrics,
            checkpoint_uri=settled.checkpoint_uri if settled else None,
            artifacts=settled.artifacts if settled else None,
            problem=settled.problem if settled else None,
        )

    def _read_rounds(self, plan: Plan) -> RoundTable:
        table = self._rounds = self._rounds or RoundTable(plan.spec.replicas, plan.created_at)
        prefix = plan.shared_layout.commits
        keys = chosen(list(self._cloud.objects.keys_after(prefix, self._last or prefix)))
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            for key, body in zip(keys, pool.map(self._cloud.objects.read, keys), strict=True):
                self._last = key
                try:
                    table.add(Commit.from_json(body or b"", key))
                except DocumentError:
                    # A commit that cannot be read is left out of the page.
                    continue
        return table
