"""The stack: one per account and region. It only composes."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from infra.admit_function import AdmitFunction
from infra.attempt_function import AttemptFunction
from infra.console import Console
from infra.dashboard import Dashboard
from infra.dead_letters import DeadLetters
from infra.event_bus import EventBus
from infra.event_rule import EventRule
from infra.example import example_input
from infra.handler_function import HandlerSettings
from infra.health_alarms import HealthAlarms
from infra.inbox_topic import InboxTopic
from infra.introduction import introduction
from infra.notify_function import NotifyFunction
from infra.plan_function import PlanFunction
from infra.react_function import ReactFunction
from infra.rendezvous_bucket import RendezvousBucket
from infra.replica_role import ReplicaRole
from infra.rerun_access import RerunAccess
from infra.settings import STACK_NAME, StackSettings
from infra.settle_function import SettleFunction
from infra.start_function import StartFunction
from infra.stop_function import StopFunction
from infra.sweep_function import SweepFunction
from infra.timer_function import TimerFunction
from infra.workflow import Workflow
from muster.contract.aws.job_status import BEFORE_TRAINING

# On a job's way to Training and from there to its end. Its end's event repeats them all with their times, so that
# reacting to each would only double the calls per replica.
_PASSING_STATUSES = [*BEFORE_TRAINING, "Uploading"]


class MusterStack(Stack):
    """The control plane.

    `bundle` is the functions' code (infra.bundle), `replica_package` what runs beside delivered source
    (infra.replica_package), `definition` the workflow's file.
    """

    def __init__(
        self, scope: Construct, settings: StackSettings, *, bundle: Path, replica_package: Path, definition: Path
    ) -> None:
        super().__init__(
            scope,
            STACK_NAME,
            description="Muster: N independent SageMaker training jobs as one DiLoCo run",
            analytics_reporting=False,
        )
        inbox = InboxTopic(self, "Inbox").topic
        bucket = RendezvousBucket(self, "Rendezvous", inbox=inbox, name=settings.bucket_name).bucket
        package = Asset(self, "ReplicaPackage", path=str(replica_package))
        replica_role = ReplicaRole(
            self,
            "Replica",
            bucket=bucket,
            package=package,
            defaults=settings.defaults,
            arn=settings.replica_role_arn,
        ).role
        results_key = settings.defaults.kms_key_id
        bus = EventBus(self, "Events").bus
        dead_letters = DeadLetters(self, "DeadLetters").queue
        limit = settings.max_concurrent_replicas
        cap = {} if limit is None else {"MUSTER_MAX_CONCURRENT_REPLICAS": str(limit)}
        handlers = HandlerSettings(
            code=lambda_.Code.from_asset(str(bundle)),
            dead_letters=dead_letters,
            bus=bus,
            log_retention_days=settings.log_retention_days,
            environment={
                "MUSTER_BUCKET": bucket.bucket_name,
                "MUSTER_JOB_PREFIX": settings.job_prefix,
                "MUSTER_BUS": bus.event_bus_name,
                **cap,
            },
        )
        timer = TimerFunction(self, "Timer", settings=handlers, bucket=bucket, job_prefix=settings.job_prefix)
        plan = PlanFunction(
            self,
            "Plan",
            settings=handlers,
            bucket=bucket,
            replica_role=replica_role,
            package_uri=package.s3_object_url,
            defaults=settings.defaults,
            launches_per_second=settings.launches_per_second,
            timer=timer,
        ).function
        attempt = AttemptFunction(
            self,
            "Attempt",
            settings=handlers,
            bucket=bucket,
            replica_role=replica_role,
            job_prefix=settings.job_prefix,
        ).function
        react = ReactFunction(self, "React", settings=handlers, bucket=bucket, job_prefix=settings.job_prefix).function
        stop = StopFunction(
            self,
            "Stop",
            settings=handlers,
            bucket=bucket,
            job_prefix=settings.job_prefix,
            results_key=results_key,
        ).function
        settle = SettleFunction(
            self,
            "Settle",
            settings=handlers,
            bucket=bucket,
            job_prefix=settings.job_prefix,
            results_key=results_key,
        ).function
        admit = AdmitFunction(self, "Admit", settings=handlers, bucket=bucket).function
        state_machine = Workflow(
            self,
            "Workflow",
            definition=definition,
            functions={
                "PlanFunctionArn": plan,
                "AdmitFunctionArn": admit,
                "AttemptFunctionArn": attempt,
                "SettleFunctionArn": settle,
                "StopFunctionArn": stop,
            },
            rearm_seconds=settings.rearm_seconds,
            log_retention_days=settings.log_retention_days,
        ).state_machine
        sweep = SweepFunction(
            self,
            "Sweep",
            settings=handlers,
            bucket=bucket,
            job_prefix=settings.job_prefix,
            results_key=results_key,
            state_machine=state_machine,
            hours=settings.sweep_hours,
        ).function
        RerunAccess(self, "Reruns", state_machine=state_machine, functions=[settle, stop, sweep])
        start = StartFunction(
            self,
            "Start",
            settings=handlers,
            bucket=bucket,
            inbox=inbox,
            state_machine=state_machine,
            schedules=settings.schedules,
        ).function
        notify = NotifyFunction(self, "Notify", settings=handlers, email=settings.notify_email)
        people = notify.topic
        EventRule(
            self,
            "JobEvents",
            description="Muster: changes of status of its training jobs",
            pattern=events.EventPattern(
                source=["aws.sagemaker"],
                detail_type=["SageMaker Training Job State Change"],
                detail={
                    "TrainingJobName": [{"prefix": f"{settings.job_prefix}-"}],
                    "$or": [
                        {"TrainingJobStatus": ["Completed", "Failed", "Stopped"]},
                        {"SecondaryStatus": [{"anything-but": _PASSING_STATUSES}]},
                    ],
                },
            ),
            function=react,
            dead_letters=dead_letters,
        )
        EventRule(
            self,
            "EarlyEnds",
            description="Muster: runs that ended before they were settled",
            pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [state_machine.state_machine_arn],
                    "status": ["ABORTED", "FAILED", "TIMED_OUT"],
                },
            ),
            function=stop,
            dead_letters=dead_letters,
        )
        functions = {
            "plan": plan,
            "admit": admit,
            "attempt": attempt,
            "react": react,
            "settle": settle,
            "stop": stop,
            "sweep": sweep,
            "start": start,
            "notify": notify.function,
            "timer": timer.function,
        }
        alarms = []
        if settings.health_alarms:
            alarms = HealthAlarms(
                self,
                "Health",
                state_machine=state_machine,
                functions=functions,
                dead_letters=dead_letters,
                topic=people,
            ).alarms
        if settings.dashboard:
            console = Console(self, "Console")
            dashboard = Dashboard(
                self,
                "Dashboard",
                state_machine=state_machine,
                functions=functions,
                dead_letters=dead_letters,
                alarms=alarms,
                words=introduction(
                    console=console,
                    machine=state_machine.state_machine_arn,
                    bucket=bucket.bucket_name,
                    stack=self.stack_name,
                    example=example_input(settings.defaults, self.region, indent=2),
                ),
            )
            CfnOutput(self, "DashboardUrl", value=console.dashboard(dashboard.name))
        for name, value in (
            ("StateMachineArn", state_machine.state_machine_arn),
            ("BucketName", bucket.bucket_name),
            ("JobPrefix", settings.job_prefix),
            ("ReplicaRoleArn", replica_role.role_arn),
            ("ReplicaPackageUri", package.s3_object_url),
            ("ReplicaDefaults", settings.defaults.to_json().decode()),
            ("EventBusName", bus.event_bus_name),
            ("NotificationTopicArn", people.topic_arn),
            ("DeadLetterQueueUrl", dead_letters.queue_url),
            ("ExampleInput", example_input(settings.defaults, self.region)),
            ("Region", self.region),
        ):
            CfnOutput(self, name, value=value)
