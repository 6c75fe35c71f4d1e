"""The rules that call functions: which events, on which bus, and which schedules."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_events as events

from muster.contract.aws.job_status import PASSING
from muster.contract.run.run_events import (
    RUN_REQUESTED,
    SOURCE,
    QuorumLost,
    RunContinued,
    RunFailed,
    RunRefused,
    RunStopped,
    RunSucceeded,
)
from muster.infra.functions.event_delivery import RuleSettings
from muster.infra.settings.scheduled_runs import ScheduledRun
from muster.infra.settings.stack_settings import StackSettings

JOB_SOURCE, JOB_DETAIL_TYPE = "aws.sagemaker", "SageMaker Training Job State Change"
_NOTIFIED = (QuorumLost, RunSucceeded, RunFailed, RunStopped, RunContinued, RunRefused)


@dataclass(frozen=True)
class TriggerContext:
    """What rules depend on."""

    settings: StackSettings
    state_machine_arn: str
    bus: events.IEventBus


def job_events(context: TriggerContext) -> list[RuleSettings]:
    """React is called when a training job of the stack changes its status, but not for those that it passes through.

    Each call writes what clients see. Every event has the times of all statuses before it, so none of them is lost.
    """
    pattern = job_pattern(context.settings.job_prefix)
    return [RuleSettings("JobEvents", "Muster: status changes of the stack's training jobs", pattern)]


def job_pattern(job_prefix: str) -> events.EventPattern:
    """The events of training jobs that react is called for; the names of the jobs begin with the prefix."""
    return events.EventPattern(
        source=[JOB_SOURCE],
        detail_type=[JOB_DETAIL_TYPE],
        detail={
            "TrainingJobName": [{"prefix": f"{job_prefix}-"}],
            "$or": [
                {"TrainingJobStatus": ["Completed", "Failed", "Stopped"]},
                {"SecondaryStatus": [{"anything-but": [*PASSING]}]},
            ],
        },
    )


def early_ends(context: TriggerContext) -> list[RuleSettings]:
    """Stop is called when an execution ends before its run was settled."""
    pattern = events.EventPattern(
        source=["aws.states"],
        detail_type=["Step Functions Execution Status Change"],
        detail={"stateMachineArn": [context.state_machine_arn], "status": ["ABORTED", "FAILED", "TIMED_OUT"]},
    )
    return [RuleSettings("EarlyEnds", "Muster: executions that ended before their run was settled", pattern)]


def sweep_schedule(context: TriggerContext) -> list[RuleSettings]:
    """Sweep is called every `sweep_hours`; with 0 there is no schedule, and the function costs nothing."""
    hours = context.settings.runs.sweep_hours
    if not hours:
        return []
    description = "Muster: settles runs whose end was missed and stops orphaned jobs"
    return [RuleSettings("Schedule", description, schedule=events.Schedule.rate(Duration.hours(hours)))]


def run_requests(context: TriggerContext) -> list[RuleSettings]:
    """Start is called by events on the stack's bus and by the deployment's schedules."""
    requests = on_own_bus(context, "Requests", "Muster: requests to start a run", RUN_REQUESTED)
    return [requests, *(_scheduled_run(*item) for item in sorted(context.settings.schedules.items()))]


def _scheduled_run(name: str, schedule: ScheduledRun) -> RuleSettings:
    spec = {"spec": schedule.spec_text} if schedule.spec_key is None else {"spec_key": schedule.spec_key}
    request = {"name": name, "at": events.EventField.time, **spec}
    return RuleSettings(
        f"Schedule-{name}",
        f"Muster: starts a run of {name}, {schedule.at}",
        schedule=events.Schedule.expression(schedule.at),
        message=events.RuleTargetInput.from_object({"schedule": request}),
    )


def on_own_bus(context: TriggerContext, construct_id: str, description: str, detail_type: str) -> RuleSettings:
    """A rule for events on the stack's bus, whoever has put them there."""
    pattern = events.EventPattern(detail_type=[detail_type])
    return RuleSettings(construct_id, description, pattern, bus=context.bus)


def run_ends(context: TriggerContext) -> list[RuleSettings]:
    """Notify is called for the events that people are notified of."""
    pattern = events.EventPattern(source=[SOURCE], detail_type=[event.detail_type for event in _NOTIFIED])
    return [RuleSettings("Ends", "Muster: events that people are notified of", pattern, bus=context.bus)]


def no_rules(_context: TriggerContext) -> list[RuleSettings]:
    """The function is called by the workflow or by EventBridge Scheduler only."""
    return []
