"""The face of Muster in Python: a stack, and the runs in it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from muster.client.aws.cloud import Cloud, open_session
from muster.client.aws.deployed_stack import DEFAULT_STACK
from muster.client.aws.reported import Execution, read_input
from muster.client.cli.log_options import read_regex
from muster.client.errors import (
    OUTAGE_SECONDS,
    GoingRunError,
    NoResultError,
    OutageError,
    ResumedRunError,
    UnfinishedRunError,
    WaitTimeoutError,
)
from muster.client.launch.deployment_context import surroundings
from muster.client.launch.dry_run import DryRun, dry_run
from muster.client.launch.execution_name import execution_name
from muster.client.launch.source_archive import pack
from muster.client.logs.log_lines import LogLine, LogQuery
from muster.client.logs.log_reader import follow_lines, last_lines, read_lines
from muster.client.runs.doctor import Diagnosis, examine
from muster.client.runs.event_log import EventLogEntry
from muster.client.runs.live_page import PageSource, read_page
from muster.client.runs.observer import Observer, read_result
from muster.client.runs.run_list import LIST_MAX, RunSummary, list_runs
from muster.client.runs.run_status import RunState, RunStatus
from muster.contract.errors import RunNameTakenError
from muster.contract.names import run_name
from muster.contract.run.execution_input import execution_input
from muster.contract.run.orphans import YOUNG_SECONDS
from muster.contract.run.result import Result
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.report.links import console_links
from muster.report.render import render

POLL_SECONDS = 2.0
# Lines have the times of their instances' clocks.
_CLOCKS_DIFFER_BY = timedelta(minutes=5)
# SageMaker: a job that is stopped has two minutes to save its work. So long after a run's end its jobs may still write.
_SAVED_WITHIN = timedelta(minutes=10)


class Muster:
    """A deployed stack, found by its CloudFormation outputs. Nothing is called before the first use.

    `profile` and `region` are chosen as by the AWS CLI where they are left out, AWS_REGION before AWS_DEFAULT_REGION;
    `session` takes the place of both.

    Raises:
        CredentialsError: there is no such profile.
    """

    def __init__(
        self,
        stack: str = DEFAULT_STACK,
        session: boto3.Session | None = None,
        *,
        profile: str | None = None,
        region: str | None = None,
    ) -> None:
        self._cloud = Cloud(stack, session or open_session(profile, region))

    @property
    def bucket(self) -> str:
        """The bucket in which the runs of this stack meet and leave what they made."""
        return self._cloud.stack.bucket

    def launch(self, spec: Spec | Mapping[str, Any]) -> Run:
        """Start a run. Its name is the spec's, or a new one.

        The same spec under the same name, sent again while the run goes on, is the same run. A `source_dir` of this
        machine is relative to the working directory.

        Raises:
            SpecError: with every problem of the spec at once; nothing was created.
            RunNameTakenError: the name belongs to another run.
            ClientError: the cloud cannot be reached or refuses.
        """
        checked = spec if isinstance(spec, Spec) else parse_spec(dict(spec))
        name = execution_name(checked)
        self._cloud.start_execution(name, execution_input(self._with_source(checked)))
        return self.run(name)

    def _with_source(self, spec: Spec) -> Spec:
        """The spec as others can read it: a folder of this machine is packed and uploaded, once."""
        if spec.source_dir is None or spec.delivered:
            return spec
        uri = self._cloud.store_source(pack(Path(spec.source_dir)))
        return spec.model_copy(update={"source_dir": uri})

    def plan(self, spec: Spec | Mapping[str, Any]) -> DryRun:
        """What a launch of `spec` would send, need and cost here; nothing is created or uploaded.

        Prices come from the Price List API, which needs `pricing:GetProducts`; else from the shipped table.

        Raises:
            SpecError: with every problem of the spec at once.
            ClientError: the stack cannot be found.
        """
        checked = spec if isinstance(spec, Spec) else parse_spec(dict(spec))
        return dry_run(checked, surroundings(self._cloud, checked))

    def doctor(self, young_seconds: float = YOUNG_SECONDS) -> Diagnosis:
        """What has outlived its run; nothing is changed. A job younger than `young_seconds` is not judged.

        Raises:
            ClientError: the cloud cannot be reached or refuses.
        """
        return examine(self._cloud, young_seconds)

    def list(self, state: RunState | None = None, limit: int = LIST_MAX) -> list[RunSummary]:
        """At most `limit` runs in `state` (all without one), the newest first; Step Functions knows 90 days of them.

        Raises:
            ClientError: the cloud cannot be reached or refuses.
        """
        return list_runs(self._cloud, state, limit)

    def run(self, name: str) -> Run:
        """The run named `name`, whether it exists or not: its methods will tell."""
        return Run(self._cloud, name)


class Run:
    """One run: an execution of the stack's state machine."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self.name = name
        self._cloud = cloud
        self._observer = Observer(cloud, name)

    def status(self) -> RunStatus:
        """The run as it is now.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        return self._observer.look()

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[RunStatus], None] | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> RunStatus:
        """Return the run's status once the run has ended and none of its jobs is left; `timeout` is in seconds.

        `progress` is called with every status on the way, the last one included.

        Raises:
            WaitTimeoutError: `timeout` went by; the run goes on.
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
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
        *,
        follow: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        regex: str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """What the replicas have written, all ranks (or those of `rank`) and attempts merged in time order.

        With `tail` only the last so many of them; with `follow` also what they write from now on, until the run has
        ended. A line that CloudWatch Logs delivers more than five minutes behind newer ones is not seen while
        following.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
            OptionError: `regex` is no regular expression.
        """
        pattern = None if regex is None else read_regex(regex, "regex")
        # The log group is the account's, for ever: CloudWatch Logs is spared the search before the run.
        execution = self._cloud.describe_execution(self.name)
        began = execution.started_at - _CLOCKS_DIFFER_BY
        query = LogQuery(
            prefix=self._cloud.stack.job_prefix,
            run=run_name(self.name),
            since=began if since is None else max(since.astimezone(), began),
            ranks={rank} if isinstance(rank, int) else rank,
            until=until,
            regex=pattern,
        )
        if query.is_empty:
            return iter(())
        if tail is not None:
            last = last_lines(self._cloud, query, tail, _last_moment(execution, until))
            if not follow:
                return iter(last)
            query = replace(query, since=last[0].at if last else query.since)
        return follow_lines(self._cloud, query, self._has_ended) if follow else read_lines(self._cloud, query)

    def _has_ended(self) -> bool:
        # One call while the run goes on; the whole status only once the execution has ended.
        if self._cloud.describe_execution(self.name).ended_at is None:
            return False
        return self.status().state.is_terminal

    def events(self) -> list[EventLogEntry]:
        """What has happened to the run until now, oldest first.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        return self._observer.event_log()

    def spec(self) -> dict[str, Any]:
        """What the run was started with, as it was written: what is left out was left to the stack.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        return read_input(self._cloud.execution_input(self.name))

    @property
    def console_url(self) -> str:
        """The page of the run's execution in the Step Functions console."""
        stack = self._cloud.stack
        return console_links(stack.execution_arn(self.name), stack.job_prefix).execution

    def rerun(self) -> Run:
        """Let the run, which has ended, go on as another one from its last committed round; asked again, the same.

        Raises:
            GoingRunError: it has not ended.
            ResumedRunError: it goes on already, under a name of somebody's choice.
            RunNameTakenError: its next name belongs to a run that has nothing to do with it.
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        if not self.status().state.is_terminal:
            raise GoingRunError(self.name)
        name, continued_by = self._observer.succession()
        if continued_by not in {None, name}:
            raise ResumedRunError(self.name, str(continued_by))
        if continued_by is None:
            parent = run_name(self.name)
            spec = parse_spec({**self.spec(), "name": name, "resume_from": parent})
            try:
                self._cloud.start_execution(name, execution_input(spec))
            except RunNameTakenError:
                # Started a moment ago, by the rerun policy or by a call whose answer was lost, and not known yet.
                if self._cloud.describe_execution(name).parent != parent:
                    raise
        return Run(self._cloud, name)

    def report(self) -> bytes:
        """The run's page, one HTML file: that in the bucket, or while there is none, one of the run as it is now.

        Raises:
            NoPlanError: there is nothing to show, because the run was refused or has only just begun.
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        return read_page(self._cloud, run_name(self.name)) or render(self.live_page().look())

    def live_page(self) -> PageSource:
        """What pages of the run as it is now are made from.

        Looking again asks only for what can have changed.
        """
        return PageSource(self._cloud, self.name)

    def cancel(self) -> bool:
        """Stop the run; whether there was something to stop. Its jobs may take minutes to save their work.

        Raises:
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        if self._cloud.describe_execution(self.name).ended_at is not None:
            return False
        self._cloud.stop_execution(self.name, "Cancelled by a client of Muster.")
        return True

    def result(self) -> Result:
        """What came of the run.

        Raises:
            UnfinishedRunError: it has not ended.
            NoResultError: it ended without a settlement; the error says why.
            UnknownRunError: there is no such run.
            ClientError: the cloud cannot be reached or refuses.
        """
        result = read_result(self._cloud, run_name(self.name))
        if result is not None:
            return result
        status = self.status()
        if not status.state.is_terminal:
            raise UnfinishedRunError(self.name)
        raise NoResultError(self.name, status.reason or f"the execution {status.state}")


def _last_moment(execution: Execution, until: datetime | None) -> datetime:
    """When the last line of a run can have been written that is asked for."""
    moments = [datetime.now(UTC) + _CLOCKS_DIFFER_BY]
    if execution.ended_at is not None:
        moments.append(execution.ended_at + _SAVED_WITHIN)
    if until is not None:
        moments.append(until.astimezone())
    return min(moments)
