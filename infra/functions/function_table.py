"""The table of the functions: how they differ, and what each may do.

All run the same code under a role of their own (handler_function.py). A comment stands where a number or a permission
needs a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.contract.spec.recipe_reference import RECIPES
from muster.contract.training.source_delivery import PACKAGES, SOURCE
from muster.infra.functions.event_delivery import RuleSettings
from muster.infra.functions.triggers import (
    TriggerContext,
    early_ends,
    job_events,
    no_rules,
    run_ends,
    run_requests,
    sweep_schedule,
)
from muster.infra.policy import Statement, Target, allow, list_under, pass_role, read, read_and_write, write

LAMBDA_SECONDS_MAX = 900  # Lambda: the longest time-out
SECONDS_MIN = 240
"""Two calls of services that hang fit into it, with all their tries: one, and the one that says so."""


@dataclass(frozen=True)
class FunctionRow:
    """One function of the table.

    `variables` names the environment variables that it has besides those of all functions. `in_workflow` means that
    the workflow's definition calls it, `starts_continuations` that it may start the run that continues another one,
    `cancels_runs` that it ends cancelled runs, and their continuations with them. `in_network` means that it is in
    the VPC of a stack that has one. `on_schedule` means that the schedules of runs call it. `snap_start` means that it
    starts from a snapshot in a stack that has them.
    """

    name: str
    description: str
    timeout_seconds: int
    memory_mb: int
    statements: Sequence[Statement]
    variables: Sequence[str] = ()
    triggers: Callable[[TriggerContext], list[RuleSettings]] = no_rules
    in_workflow: bool = False
    starts_continuations: bool = False
    cancels_runs: bool = False
    in_network: bool = False
    on_schedule: bool = False
    snap_start: bool = False

    @property
    def targets(self) -> frozenset[Target]:
        """What the statements name: all of it must exist before the function."""
        return frozenset(statement.target for statement in self.statements)


# SendTaskSuccess and SendTaskFailure have no resource level. The token is the capability, and tokens are stored under
# control/ only. A decision for a rerun is sent as an error, which the workflow catches.
COMPLETE_TASKS = allow(Target.ANY, "states:SendTaskSuccess")
FAIL_TASKS = allow(Target.ANY, "states:SendTaskFailure")
EMIT = allow(Target.BUS, "events:PutEvents")
WATCH_AND_STOP_JOBS = allow(
    Target.JOBS, "sagemaker:DescribeTrainingJob", "sagemaker:ListTags", "sagemaker:StopTrainingJob"
)
# The last lines of attempts that failed, for the result and the page.
READ_JOB_LOGS = (
    allow(Target.JOB_LOG_GROUP, "logs:DescribeLogStreams"),
    allow(Target.JOB_LOGS, "logs:GetLogEvents"),
)
LIST_JOBS = allow(Target.ANY, "sagemaker:ListTrainingJobs")  # it has no resource level

# Give a place in the run queue back and admit the next run.
_LEAVE_QUEUE = (read_and_write("queue/*"), read("control/*/queue_token.json"), COMPLETE_TASKS)
# Keep the replicas' records and their roll-up, and mark replicas that are lost and money that is spent.
CHANGE_RECORDS = read_and_write("control/*/replicas/*", "control/*/rollup/*")
_MARK_LOSSES = write("control/*/lost/*", "control/*/spent/*")
KEEP_RECORDS = (
    read("control/*/plan.json", "control/*/stopping.json"),
    CHANGE_RECORDS,
    _MARK_LOSSES,
    list_under("control/*"),
)
_READ_RUN = ("control/*/plan.json", "control/*/stopping.json", "control/*/result.json", "control/*/replicas/*")

_MARKS_OF_THE_END = ("control/*/announced.json", "control/*/finished.json")


def _settle_run(*written: str) -> tuple[Statement, ...]:
    """End a run: read its records and manifests, write the objects `written` and the page, list it, stop its jobs."""
    return (
        read(*_READ_RUN, *_MARKS_OF_THE_END, "output/*"),
        write(*written, *_MARKS_OF_THE_END),
        # The outputs of a run whose program writes no manifest are listed once.
        list_under("control/*", "queue/*", "ended/*", "output/*", "rendezvous/*/commits/*"),
        read("rendezvous/*/commits/*"),  # for the page
        read_and_write("ended/*"),  # what a list shows of it
        write("control/*/report.html"),
        allow(Target.RESULTS_KEY, "kms:Decrypt"),
        WATCH_AND_STOP_JOBS,
        LIST_JOBS,
        *READ_JOB_LOGS,
        *_LEAVE_QUEUE,
        EMIT,
    )


START_RUNS = (
    allow(Target.STATE_MACHINE, "states:StartExecution"),
    # To see whether an execution that has the name already is the same run.
    allow(Target.EXECUTIONS, "states:DescribeExecution"),
)

# A continuation that was started while its run was being cancelled is stopped.
STOP_CONTINUATIONS = (allow(Target.EXECUTIONS, "states:StopExecution"),)

FUNCTIONS = (
    FunctionRow(
        name="plan",
        description="Muster: validates a run's spec and writes its plan",
        timeout_seconds=SECONDS_MIN,
        memory_mb=512,
        variables=(
            *("MUSTER_REPLICA_ROLE_ARN", "MUSTER_DEFAULTS", "MUSTER_LAUNCHES_PER_SECOND"),
            *("MUSTER_TIMER_FUNCTION_ARN", "MUSTER_TIMER_ROLE_ARN"),
        ),
        in_workflow=True,
        statements=(
            write(
                *("control/*/plan.json", "control/*/lineage.json", "control/*/continued_by.json"),
                "runs/*/document.json",
            ),
            read_and_write(f"{PACKAGES}*", f"{SOURCE}*", f"{RECIPES}*"),  # a plan keeps what its run needs of these
            # A recipe that the spec only names: from where the settings allow, and from the public hub.
            allow(Target.RECIPE_SOURCES, "s3:GetObject"),
            allow(Target.PUBLIC_HUB, "sagemaker:DescribeHubContent"),
            # An existing plan may be this execution's own; and a run may continue one that has ended.
            read("control/*/plan.json", "control/*/result.json", "control/*/continued_by.json", "queue/*"),
            read("control/*/stopping.json"),  # whether the run that it continues was cancelled
            read("rendezvous/*/commits/*"),  # whether the rounds that a run continues still exist
            list_under(
                "control/*", "queue/*", *(f"{p}*" for p in (PACKAGES, SOURCE, RECIPES)), "rendezvous/*/commits/*"
            ),
            allow(Target.TIMERS, "scheduler:CreateSchedule"),
            pass_role(Target.TIMER_ROLE, "scheduler.amazonaws.com"),
            EMIT,
        ),
    ),
    FunctionRow(
        name="admit",
        description="Muster: admits runs from the run queue within the limit on concurrent replicas",
        timeout_seconds=SECONDS_MIN,
        memory_mb=512,
        in_workflow=True,
        statements=(
            *_LEAVE_QUEUE,
            FAIL_TASKS,
            read("control/*/plan.json", "control/*/result.json"),
            write("control/*/queue_token.json"),
            list_under("control/*", "queue/*"),
        ),
    ),
    FunctionRow(
        name="attempt",
        description="Muster: launches the training job of an attempt, or adopts it if it exists already",
        timeout_seconds=SECONDS_MIN,  # enough to retry CreateTrainingJob while it is throttled
        memory_mb=1024,  # CPU grows with memory: a cold start takes half as long as with 512 MB
        in_workflow=True,
        snap_start=True,  # it and react are between the end of a job and the next launch, often both cold
        statements=(
            # It creates jobs under the launcher role (launcher_role.py), and looks after them under its own.
            *KEEP_RECORDS,
            WATCH_AND_STOP_JOBS,
            COMPLETE_TASKS,
            FAIL_TASKS,
            EMIT,
        ),
    ),
    FunctionRow(
        name="react",
        description="Muster: records the status of a training job and decides what follows its end",
        timeout_seconds=300,  # enough for calls that are throttled when thousands of jobs end at the same time
        memory_mb=1024,  # as attempt: it is on the way from the end of a job to the next attempt
        snap_start=True,
        triggers=job_events,
        statements=(
            *KEEP_RECORDS,
            WATCH_AND_STOP_JOBS,
            COMPLETE_TASKS,
            FAIL_TASKS,
            EMIT,
        ),
    ),
    FunctionRow(
        name="settle",
        description="Muster: resolves the replicas' manifests and writes the result of a run",
        timeout_seconds=LAMBDA_SECONDS_MAX,  # it reads the head of every replica's archive, of thousands of them
        memory_mb=1024,
        in_workflow=True,
        starts_continuations=True,
        statements=_settle_run("control/*/result.json"),
    ),
    FunctionRow(
        name="stop",
        description="Muster: fences a run, stops its jobs and settles it",
        timeout_seconds=LAMBDA_SECONDS_MAX,  # it stops thousands of jobs at SageMaker's rate and waits for their ends
        memory_mb=1024,
        triggers=early_ends,
        in_workflow=True,
        starts_continuations=True,
        cancels_runs=True,
        statements=(
            *_settle_run("control/*/stopping.json", "control/*/result.json"),
            # For a replica that cannot be launched: its job may exist, and may even have ended.
            FAIL_TASKS,
            CHANGE_RECORDS,
            _MARK_LOSSES,
        ),
    ),
    FunctionRow(
        name="sweep",
        description="Muster: settles runs whose end was missed and stops orphaned jobs",
        timeout_seconds=LAMBDA_SECONDS_MAX,  # as stop: it does the same work
        memory_mb=1024,
        variables=("MUSTER_STATE_MACHINE_ARN",),
        triggers=sweep_schedule,
        starts_continuations=True,
        cancels_runs=True,
        statements=(
            *_settle_run("control/*/stopping.json", "control/*/result.json"),
            allow(Target.STATE_MACHINE, "states:ListExecutions"),
        ),
    ),
    FunctionRow(
        name="start",
        description="Muster: starts the runs that the inbox, events and schedules request",
        timeout_seconds=SECONDS_MIN,
        memory_mb=512,
        variables=("MUSTER_STATE_MACHINE_ARN",),
        triggers=run_requests,  # and the inbox's topic, see control_functions.py
        statements=(
            read("inbox/*"),
            Statement(("s3:DeleteObject", "s3:PutObject"), Target.OBJECTS, ("inbox/*.error.txt",)),
            list_under("inbox/*"),
            *START_RUNS,
            EMIT,
        ),
    ),
    FunctionRow(
        name="notify",
        description="Muster: notifies people of the ends of runs",
        timeout_seconds=SECONDS_MIN,
        memory_mb=256,
        variables=("MUSTER_TOPIC_ARN",),
        triggers=run_ends,
        statements=(allow(Target.TOPIC, "sns:Publish"),),
    ),
    FunctionRow(
        name="timer",
        description="Muster: stops a run that missed its launch gate or its deadline",
        timeout_seconds=LAMBDA_SECONDS_MAX,  # as stop: it does the same work
        memory_mb=1024,
        on_schedule=True,  # called by EventBridge Scheduler, once per timer that plan has created
        statements=(
            read(*_READ_RUN),
            write("control/*/stopping.json"),
            list_under("control/*"),
            WATCH_AND_STOP_JOBS,
        ),
    ),
)
