"""The SDK: a stack, and the runs in it."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.aws.cloud import Cloud
from muster.client.aws.connection import open_session
from muster.client.aws.dead_letter_queue import LISTED_MAX as LETTERS_MAX
from muster.client.aws.reported import Execution
from muster.client.aws.workflow_executions import LISTED_MAX as RUNS_MAX
from muster.client.client_errors import (
    OUTAGE_SECONDS,
    ClientError,
    ModelPendingError,
    NoModelError,
    NoResultError,
    OutageError,
    PickledSessionError,
    RunContinuedError,
    RunNotEndedError,
    UnansweredLaunchError,
    UnfinishedRunError,
    UnknownReplicaError,
    UnknownRunError,
    WaitTimeoutError,
    may_have_started,
)
from muster.contract.backend import Backend
from muster.contract.document import json_object
from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.layout import s3_uri
from muster.contract.names import fresh_run_name, run_name, time_suffix
from muster.contract.run.ended_run import Verdict

# What a method needs is imported when it is called: most of the time of a command such as `muster status` would
# otherwise go into the modules of the others.
if TYPE_CHECKING:
    import boto3

    from muster.client.launch.dry_run import DryRun
    from muster.client.launch.expanded_spec import ExpandedSpec
    from muster.client.logs.log_lines import LogLine
    from muster.client.logs.log_reader import OtherLogs
    from muster.client.runs.cancellation import Cancellation
    from muster.client.runs.dead_letters import DeadLetters, Dropped, Replay
    from muster.client.runs.event_log import EventLogEntry
    from muster.client.runs.failed_attempt import FailedAttempt
    from muster.client.runs.live_page import PageSource
    from muster.client.runs.model_download import ModelDownload
    from muster.client.runs.observer import Observer
    from muster.client.runs.run_list import RunSummary
    from muster.client.runs.run_state import RunState
    from muster.client.runs.run_status import RunStatus
    from muster.client.runs.scaling import Scaled
    from muster.contract.aws.failure_classes import FailureClass
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.model import ModelResult
    from muster.contract.run.result import Result
    from muster.contract.spec.spec import Spec
    from muster.report.comparison import Comparison

POLL_SECONDS = 2.0
# Lines carry the times of their instances' clocks, which may differ from AWS's.
_CLOCK_SKEW = timedelta(minutes=5)
# SageMaker: a job that is stopped has two minutes to save its work, so its jobs may still write after a run's end.
_WRITES_AFTER_END = timedelta(minutes=10)


class Muster:
    """A deployed stack, found by its CloudFormation outputs. Makes no call before its first use.

    Without a `stack`, the one named Muster is meant, or else the only one in the account and region. A `profile` or
    `region` that is left out is chosen as the AWS CLI chooses it, AWS_REGION before AWS_DEFAULT_REGION; `session`
    replaces both. `clients` are clients of boto3 to use instead of new ones, by the services' names, such as
    `{"logs": client}`. Two are equal that reach the same stack with the same profile and region. It can be pickled
    unless it was given a session or clients.

    Each of its methods raises a ClientError where the stack cannot be found, or where AWS cannot be reached or refuses.

    Raises:
        CredentialsError: there is no such profile.
    """

    def __init__(
        self,
        stack: str | None = None,
        session: boto3.Session | None = None,
        *,
        profile: str | None = None,
        region: str | None = None,
        clients: Mapping[str, object] | None = None,
    ) -> None:
        self._named = stack
        self._session, self._profile, self._region = session, profile, region
        self._clients = dict(clients or {})
        self._cloud = Cloud(stack, session or open_session(profile, region), clients=clients)

    def __repr__(self) -> str:
        region = self._cloud.session.region_name
        named = [] if self._named is None else [repr(self._named)]
        return f"Muster({', '.join([*named, *([] if region is None else [f'region={region!r}'])])})"

    def _repr_html_(self) -> str:
        """The newest runs as a table, for notebooks."""
        from muster.client.runs.notebook import runs_html  # noqa: PLC0415

        return runs_html(repr(self), lambda: self.list(limit=10))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Muster) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._named)

    def _identity(self) -> tuple[object, ...]:
        session = self._cloud.session
        return self._named, self._session, self._clients, session.profile_name, session.region_name

    def __reduce__(self) -> tuple[Callable[..., Muster], tuple[str | None, ...]]:
        if self._session is not None or self._clients:
            raise PickledSessionError(repr(self))
        return _reopened, (self._named, self._profile, self._region)

    @property
    def stack(self) -> str:
        """The name of the stack."""
        return self._named or self._cloud.stack.name

    @property
    def bucket(self) -> str:
        """The stack's bucket: it holds the rendezvous and the output of all runs."""
        return self._cloud.stack.bucket

    @property
    def job_prefix(self) -> str:
        """What the names of the stack's training jobs begin with."""
        return self._cloud.stack.job_prefix

    def launch(self, spec: Spec | Mapping[str, object], changes: Mapping[str, object] | None = None) -> Run:
        """Start a run. It has the spec's name, or else a new one. `changes`: values by path, as `{"kwargs.lr": 3e-4}`.

        Idempotent while the run has not ended: the same spec under the same name is the same run. A local `source_dir`
        is relative to the working directory, and so are the files of a `recipe`.

        Raises:
            SpecError: the spec, its recipe or its source has problems, all of which are listed; nothing was created.
            RunNameTakenError: the name belongs to another run.
            UnansweredLaunchError: AWS has not said whether the run has started; the error says the name that it got.
        """
        from muster.client.checks.source_check import check_spec  # noqa: PLC0415
        from muster.client.launch.named_role import with_role_arn  # noqa: PLC0415
        from muster.client.launch.taken_name import taken_name  # noqa: PLC0415
        from muster.contract.run.execution_input import execution_input  # noqa: PLC0415
        from muster.contract.spec.backend_rules import rules_for  # noqa: PLC0415

        expanded = self._expanded(spec, changes)
        found = check_spec(expanded.spec)
        if found.problems:
            raise SpecError(found.problems)
        checked = with_role_arn(self._cloud, expanded.spec)
        # The input has the name that is made here, too: a launch with it is a repetition of this one.
        name = checked.name or new_run_name(checked)
        checked = checked.model_copy(update={"name": name})
        for rules in rules_for(checked):
            if named := list(rules.launch_problems(name, self._cloud.stack.job_prefix, checked)):
                raise SpecError(named)
        for key, body in expanded.objects.items():
            self._cloud.objects.store_content(key, body)
        run, document = self.run(name), execution_input(self._with_source(checked))
        try:
            run.joined = self._cloud.executions.start(name, document)
        except RunNameTakenError as error:
            raise taken_name(self._cloud, name, error) from error
        except OutageError as error:
            # A name of the caller's choice may be another run's, and the caller can repeat the launch with it.
            if expanded.spec.name is not None:
                raise
            if not self._has_started(name):
                raise UnansweredLaunchError(name, error) from error
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(may_have_started(name))
            raise
        return run

    def _has_started(self, name: str) -> bool:
        """Whether there is a run of that name; false also where that cannot be told."""
        try:
            self._cloud.executions.describe(name)
        except ClientError:
            return False
        return True

    def _with_source(self, spec: Spec) -> Spec:
        """The spec with a local folder of source code packed, uploaded once, and named by its URI."""
        if spec.source_dir is None or spec.delivered:
            return spec
        from muster.client.launch.source_archive import pack  # noqa: PLC0415

        source = pack(Path(spec.source_dir))
        self._cloud.objects.store_content(source.key, source.compressed)
        return spec.model_copy(update={"source_dir": s3_uri(self.bucket, source.key)})

    def plan(self, spec: Spec | Mapping[str, object], changes: Mapping[str, object] | None = None) -> DryRun:
        """What a launch of `spec` with `changes` would send, need and cost here; nothing is created or uploaded.

        Prices come from the Price List API, which needs `pricing:GetProducts`, or else from the shipped table.

        Raises:
            SpecError: the spec has problems, all of which are listed.
        """
        from muster.client.checks.channel_check import check_channels  # noqa: PLC0415
        from muster.client.launch.dry_run import DeploymentContext, dry_run  # noqa: PLC0415
        from muster.client.launch.named_role import with_role_arn  # noqa: PLC0415

        expanded = self._expanded(spec, changes)
        checked = with_role_arn(self._cloud, expanded.spec)
        context = DeploymentContext.of(self._cloud, checked)
        access = context.defaults.access
        denied = {} if access is None else access.denied(checked, context.place.bucket)
        return dry_run(checked, context, check_channels(self._cloud, checked, denied), expanded.recipe)

    def _expanded(self, spec: Spec | Mapping[str, object], changes: Mapping[str, object] | None = None) -> ExpandedSpec:
        from muster.client.launch.expanded_spec import ExpandedSpec, expanded_spec  # noqa: PLC0415
        from muster.contract.spec.spec import Spec  # noqa: PLC0415

        if isinstance(spec, Spec):
            if spec.model is None and not changes:
                return ExpandedSpec(spec)
            spec = spec.model_dump(mode="json", exclude_unset=True)
        if changes:
            from muster.client.launch.changes import with_changes  # noqa: PLC0415

            spec = with_changes(spec, changes)
        return expanded_spec(spec, lambda: self._cloud.session, self._cloud)

    def dead_letters(self, limit: int = LETTERS_MAX) -> DeadLetters:
        """At most `limit` events that the stack's functions did not handle; they stay in the queue."""
        from muster.client.runs.dead_letters import list_letters  # noqa: PLC0415

        return list_letters(self._cloud, limit)

    def replay_dead_letters(self, ids: Collection[str] | None = None) -> Replay:
        """Call the functions again with the events of these letters (None: of all), and delete what Lambda accepts.

        Raises:
            UnknownDeadLetterError: there is no letter with one of the ids; nothing was replayed.
        """
        from muster.client.runs.dead_letters import replay  # noqa: PLC0415

        return replay(self._cloud, ids)

    def drop_dead_letters(self, ids: Collection[str] | None = None) -> Dropped:
        """Delete these letters (None: all). Their events are lost.

        Raises:
            UnknownDeadLetterError: there is no letter with one of the ids; nothing was deleted.
        """
        from muster.client.runs.dead_letters import drop  # noqa: PLC0415

        return drop(self._cloud, ids)

    def list(
        self,
        state: RunState | None = None,
        limit: int = RUNS_MAX,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        name: str | None = None,
        reason: str | None = None,
        failure: FailureClass | None = None,
    ) -> list[RunSummary]:
        """At most `limit` runs, the newest first. Step Functions keeps them for 90 days.

        Only runs in `state`; that started at `since` or later, and before `until`; whose name begins with `name`, or
        matches it where it has a `*`, `?` or `[abc]`; whose end has these words in its `reason`; of which an attempt
        ended as `failure`. A condition that is left out is met by all.
        """
        from muster.client.runs.run_list import RunFilter, list_runs  # noqa: PLC0415

        # A time without a zone is local.
        began, before = (None if at is None else at.astimezone() for at in (since, until))
        return list_runs(self._cloud, RunFilter(state, began, before, name, reason, failure), limit)

    def report(self, runs: Sequence[RunSummary], *, more: bool = False) -> bytes:
        """The page of these runs, one HTML file: verdicts, reasons, durations and costs. `more`: there are others."""
        from muster.client.runs.runs_page import render_runs, runs_page  # noqa: PLC0415

        return render_runs(runs_page(self._cloud.stack, runs, more=more))

    def compare(self, a: str, b: str) -> Comparison:
        """The runs named `a` and `b` side by side: specs, durations, costs, rates, reruns, and metrics by round.

        Raises:
            SameRunError: `a` is `b`.
            NoPlanError: one of them was refused, or has just started.
        """
        from muster.client.runs.live_page import compare_runs  # noqa: PLC0415

        return compare_runs(self._cloud, a, b)

    def scale(self, run: str, replicas: int, *, wait: bool = False) -> Scaled:
        """Ask for another number of replicas of an elastic run, and return once the control plane has set it.

        Ranks that open are launched now; those that are closed save their work and leave. `wait`: return only when each
        trains, lacks capacity or has left. The same number again is no change, and repairs what was interrupted.

        Raises:
            ScaleError: the run is not elastic, may not have this number, or trains no more; nothing changed.
            ScalePendingError: the control plane has not answered within a minute.
        """
        from muster.client.runs.scaling import scale  # noqa: PLC0415

        return scale(self._cloud, run, replicas, wait=wait)

    def run(self, name: str) -> Run:
        """The run named `name`. Makes no call: whether the run exists shows when one of its methods is used."""
        return Run(self, name)


def _reopened(stack: str, profile: str | None, region: str | None) -> Muster:
    return Muster(stack, profile=profile, region=region)


def new_run_name(spec: Spec) -> str:
    """A name that says what is trained and since when, and is new: `digits-trainer-20261121-094500-3f9c0`.

    On a cluster the names of jobs, which begin like it, are lower-case.
    """
    from muster.contract.spec.rank_spec import uses_cluster  # noqa: PLC0415

    module = spec.trainer.partition(":")[0] if spec.trainer else "run"
    head = ".".join(module.split(".")[-2:])
    head = head.lower() if uses_cluster(spec) else head
    return fresh_run_name(re.sub("_+", "-", head), time_suffix(datetime.now(UTC), secrets.choice))


class Run:
    """One run: an execution of the stack's state machine.

    Each of its methods raises an UnknownRunError where there is no such run, and a ClientError where AWS cannot be
    reached or refuses. Two are equal that have the same name and stack. It can be pickled unless its `Muster` was given
    a session.
    """

    def __init__(self, muster: Muster, name: str) -> None:
        self.name = name
        self.muster = muster
        self.joined = False
        """Whether the launch that made it has found it running already."""
        self._cloud = muster._cloud

    @cached_property
    def _observer(self) -> Observer:
        from muster.client.runs.observer import Observer  # noqa: PLC0415

        return Observer(self._cloud, self.name)

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.muster!r})"

    def _repr_html_(self) -> str:
        """The run's status as a table, for notebooks."""
        from muster.client.runs.notebook import run_html  # noqa: PLC0415

        return run_html(repr(self), self.status)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (self.name, self.muster) == (other.name, other.muster)

    def __hash__(self) -> int:
        return hash((self.name, self.muster))

    def __reduce__(self) -> tuple[type[Run], tuple[Muster, str]]:
        return Run, (self.muster, self.name)

    def status(self) -> RunStatus:
        """The run as it is now."""
        return self._observer.look()

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[RunStatus], None] | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> RunStatus:
        """Return the run's status once the run has ended and none of its jobs is left; `timeout` is in seconds.

        `progress` is called with every status that is read, the last one included. Outages of up to ten minutes are
        survived.

        Raises:
            WaitTimeoutError: `timeout` has passed; the run continues.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        seen_at = -math.inf
        while True:
            try:
                status = self.status()
            except OutageError:
                if time.monotonic() - seen_at > OUTAGE_SECONDS:
                    raise
            else:
                seen_at = time.monotonic()
                if progress is not None:
                    progress(status)
                if status.state.is_terminal:
                    return status
            if time.monotonic() + poll_seconds > deadline:
                raise WaitTimeoutError(self.name, timeout or 0)
            time.sleep(poll_seconds)

    def logs(
        self,
        rank: int | Collection[int] | None = None,
        attempt: int | None = None,
        *,
        follow: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        regex: str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """The lines that the replicas have written: all attempts of all ranks, or those asked for, in order of time.

        `regex` keeps the lines in which it is found. `tail` keeps at most that many of the last lines. `follow`
        continues with new lines until the run has ended; it misses a line that CloudWatch Logs delivers more than five
        minutes behind newer ones.

        Raises:
            UnknownReplicaError: the run has no replica with this rank, or the replica has had no such attempt.
            NoClusterLogsError: after all other lines: a cluster ships no lines of its pods to CloudWatch Logs.
            OptionError: `regex` is not a valid regular expression.
        """
        from muster.client.logs.log_lines import LogQuery, read_regex  # noqa: PLC0415
        from muster.client.logs.log_reader import LogReader  # noqa: PLC0415

        pattern = None if regex is None else read_regex(regex, "regex")
        ranks = {rank} if isinstance(rank, int) else rank
        # The log group holds the lines of all jobs of the account: only those since the run's start are searched.
        execution = self._cloud.executions.describe(self.name)
        self._check(execution, ranks, attempt)
        began = execution.started_at - _CLOCK_SKEW
        query = LogQuery(
            prefix=self._cloud.stack.job_prefix,
            run=run_name(self.name),
            since=began if since is None else max(since.astimezone(), began),
            ranks=ranks,
            attempts=None if attempt is None else {attempt},
            until=until,
            regex=pattern,
        )
        if query.is_empty:
            return iter(())
        reader = LogReader(self._cloud, query, self._logs_elsewhere(execution, ranks), self._attempts_now)
        if tail is not None:
            last = reader.last_lines(tail, _last_line_at(execution, until))
            if not follow:
                return iter(last)
            reader = reader.since(last[0].at) if last else reader
        return reader.follow_lines(self._has_ended) if follow else reader.read_lines()

    def _logs_elsewhere(self, execution: Execution, ranks: Collection[int] | None) -> OtherLogs | None:
        """Those that are not in the log group of the stack's own region; None where all are there."""
        from muster.client.backend_offers import client_backends, client_placement  # noqa: PLC0415

        placement = client_placement() if execution.has_places else None
        if placement is not None:
            return placement.logs(self._cloud, self.name, self._attempts_now)
        backend = client_backends().get(Backend.HYPERPOD) if execution.clusters else None
        return None if backend is None else backend.logs(self._cloud, execution, ranks)

    def _attempts_now(self) -> dict[int, tuple[Attempt, ...]]:
        self._observer.look()
        return self._observer.attempts

    def _check(self, execution: Execution, ranks: Collection[int] | None, attempt: int | None) -> None:
        """Refuse ranks that the run does not have, and an attempt that none of the replicas has had."""
        unknown = [] if ranks is None else sorted(rank for rank in ranks if not 0 <= rank < execution.replicas)
        if unknown and execution.replicas:
            raise UnknownReplicaError.of_ranks(self.name, unknown, execution.replicas)
        if attempt is None:
            return
        self._observer.look()
        had = {rank: found[-1].attempt for rank, found in self._observer.attempts.items()}
        asked = {rank: had.get(rank, 0) for rank in (had if ranks is None else sorted(ranks))}
        if attempt > max(asked.values(), default=0):
            raise UnknownReplicaError.of_attempt(self.name, attempt, asked)

    def failures(self) -> tuple[FailedAttempt, ...]:
        """The latest attempt of each replica that failed and wrote a log, with its last lines; the first ones of many.

        Lines that say the values of the spec's environment show their names instead.
        """
        if not self._observer.attempts:
            self._observer.look()
        return self._observer.failures()

    def _has_ended(self) -> bool:
        # One call until the execution has ended; the whole status only then.
        if self._cloud.executions.describe(self.name).ended_at is None:
            return False
        return self.status().state.is_terminal

    def events(self) -> list[EventLogEntry]:
        """The run's events until now, oldest first."""
        return self._observer.event_log()

    def spec(self) -> dict[str, Any]:
        """The spec that the run was started with, as it was written; the stack's defaults are not in it."""
        return json_object(self._cloud.executions.input_of(self.name))

    @property
    def console_url(self) -> str:
        """The page of the run's execution in the Step Functions console."""
        from muster.report.links import console_links  # noqa: PLC0415

        stack = self._cloud.stack
        return console_links(stack.execution_arn(self.name), stack.job_prefix).execution

    def start_continuation(self) -> Run:
        """Start the continuation of the run, which has ended, from its last committed round. Idempotent.

        Raises:
            RunNotEndedError: it has not ended.
            RunContinuedError: a run with a name of the user's choice already continues it.
            RunNameTakenError: the name of its continuation belongs to an unrelated run.
        """
        from muster.contract.run.execution_input import execution_input  # noqa: PLC0415
        from muster.contract.spec.spec_reader import parse_spec  # noqa: PLC0415

        state = self.status().state
        if not state.is_terminal:
            raise RunNotEndedError(self.name, stopping=str(state) == "stopping")
        name, continued_by = self._observer.continuation_names()
        if continued_by not in {None, name}:
            raise RunContinuedError(self.name, str(continued_by))
        if continued_by is None:
            parent = run_name(self.name)
            spec = parse_spec({**self._planned_spec(), "name": name, "resume_from": parent})
            try:
                self._cloud.executions.start(name, execution_input(spec))
            except RunNameTakenError:
                # Just started by the continuation policy, or by a call whose answer was lost, and not recorded yet.
                if self._cloud.executions.describe(name).parent != parent:
                    raise
        return Run(self.muster, name)

    def _planned_spec(self) -> dict[str, Any]:
        """The spec that the run was started with; where it only names a recipe, the one that was planned."""
        document = self.spec()
        recipe = document.get("recipe")
        if recipe is None or (isinstance(recipe, dict) and "digest" in recipe):
            return document
        from muster.client.runs.observer import read_plan  # noqa: PLC0415

        plan = read_plan(self._cloud, run_name(self.name))
        return document if plan is None else plan.spec.model_dump(mode="json", exclude_unset=True)

    def report(self) -> bytes:
        """The run's page, one HTML file: the one in the bucket, or before the settlement one of the run as it is now.

        Raises:
            NoPlanError: there is nothing to show, because the run was refused or has just started.
        """
        from muster.client.runs.live_page import read_page  # noqa: PLC0415
        from muster.report.page_html import render  # noqa: PLC0415

        return read_page(self._cloud, run_name(self.name)) or render(self.live_page().look())

    def live_page(self) -> PageSource:
        """A source of pages of the run as it is now, each cheaper than the first."""
        from muster.client.runs.live_page import PageSource  # noqa: PLC0415

        return PageSource(self._cloud, self.name)

    def cancel(self) -> Cancellation:
        """Stop the run, or the continuation that trains in its place; one that is about to start is waited for.

        The jobs may take minutes to save their work. A run that has ended, with all its continuations, stays as it is.
        """
        from muster.client.runs.cancellation import cancel  # noqa: PLC0415

        return cancel(self._cloud, self.name, POLL_SECONDS)

    def cancel_replica(self, rank: int) -> str | None:
        """Stop the training job of one replica; the spec's `reruns` say whether it is rerun (by default it is not).

        A job that is being launched is waited for, for 30 seconds. `cancel` stops the whole run.

        Returns:
            The job's name; None if the replica has ended.

        Raises:
            NoJobError: there is no job that could be stopped.
            ClusterReplicaError: the job is on a cluster, where a client has no rights.
            PlacedReplicaError: it is in another place than the stack's own, where a client has none either.
            UnknownReplicaError: the run has no such replica.
        """
        from muster.client.runs.cancellation import cancel_replica  # noqa: PLC0415

        return cancel_replica(self._cloud, self.name, rank, POLL_SECONDS)

    def result(self) -> Result:
        """The settlement of the run: its verdict, and what each replica leaves.

        Raises:
            UnfinishedRunError: it has not ended.
            NoResultError: it ended without a settlement; the error says why.
        """
        from muster.client.runs.observer import own_result, read_result  # noqa: PLC0415

        try:
            result = own_result(self._cloud, self._cloud.executions.describe(self.name))
        except UnknownRunError:
            # Step Functions forgets an execution 90 days after its end; the result stays.
            result = read_result(self._cloud, run_name(self.name))
        if result is not None:
            return result
        status = self.status()
        if not status.state.is_terminal:
            raise UnfinishedRunError(self.name)
        raise NoResultError(self.name, status.reason or f"the execution {status.state}")

    def model(self, rank: int | None = None) -> ModelResult:
        """The model that the run leaves; if it did not succeed or has none, that of the run which continues it.

        Of a sweep: the model of replica `rank`.

        Raises:
            ModelPendingError: the run, or the one that continues it, has not ended.
            NoModelError: it left none.
            NoResultError: it ended without a settlement.
        """
        return self._with_model(rank)[1]

    def model_download(self, folder: Path | str, rank: int | None = None) -> ModelDownload:
        """The download of the run's model into `folder`: `fetch()` fetches what is not there yet, and verifies it.

        Of a sweep: of the model of replica `rank`.

        Raises:
            DamagedModelError: the bucket has another model than the result says.
            ModelFolderError: the folder has other files of these names, or its disk is too small.
            ModelPendingError, NoModelError, NoResultError: as `model`.
        """
        from muster.client.runs.model_download import ModelDownload  # noqa: PLC0415

        name, model = self._with_model(rank)
        return ModelDownload(self._cloud, name, model, Path(folder))

    def _with_model(self, rank: int | None) -> tuple[str, ModelResult]:
        """The newest run that has a model: this one, or a continuation if it did not succeed or has none."""
        ended: list[Result] = []
        run: Run | None = self
        while run is not None:
            try:
                ended.append(run.result())
            except UnfinishedRunError:
                raise ModelPendingError(run.name) from None
            has_come_to_its_end = ended[-1].verdict is Verdict.SUCCEEDED and ended[-1].model_of(rank) is not None
            following = None if has_come_to_its_end else run._observer.continuation()
            run = None if following is None else Run(self.muster, following)
        for result in reversed(ended):
            if (found := result.model_of(rank)) is not None:
                return result.run, found
        last = ended[-1]
        if (reason := last.why_no_model(rank)) is not None:
            raise NoModelError(last.run, reason)
        if last.model_problem is not None:
            raise NoModelError(last.run, last.model_problem)
        if last.verdict is Verdict.SUCCEEDED:
            raise NoModelError(last.run, "its trainer leaves none")
        how = "it failed" if last.verdict is Verdict.FAILED else "it was stopped"
        raise NoModelError(last.run, f"{how}: {last.reason.rstrip('.')}. `muster continue {last.run}` continues it")


def _last_line_at(execution: Execution, until: datetime | None) -> datetime:
    """The latest time at which a line that is asked for can have been written."""
    times = [datetime.now(UTC) + _CLOCK_SKEW]
    if execution.ended_at is not None:
        times.append(execution.ended_at + _WRITES_AFTER_END)
    if until is not None:
        times.append(until.astimezone())
    return min(times)
