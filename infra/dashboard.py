"""One page in CloudWatch: what runs, what is launched and rerun, how the functions do, and how to start a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.own_metric import own_metric
from infra.workflow import MAP_LABEL
from muster.contract.aws.metric_names import REPLICA_LAUNCHED, RERUNS_WITHIN_HOUR, STACK_SERVICE, function_service

_WIDTH = 24  # CloudWatch: columns of a dashboard
_PERIOD = Duration.minutes(5)
_ENDS = {"succeeded": "Succeeded", "failed": "Failed", "timed out": "TimedOut", "stopped": "Aborted"}


class Dashboard(Construct):
    """At most 50 metrics: CloudWatch gives an account three dashboards of that size for nothing."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        state_machine: sfn.StateMachine,
        functions: Mapping[str, lambda_.Function],
        dead_letters: sqs.Queue,
        alarms: Sequence[cloudwatch.Alarm],
        words: str,
    ) -> None:
        super().__init__(scope, construct_id)
        machine = state_machine.state_machine_arn
        # An account's dashboards share their names over all regions.
        self.name = f"{Stack.of(self).stack_name}-{Aws.REGION}"
        status = cloudwatch.AlarmStatusWidget(title="Alarms", alarms=alarms, width=_WIDTH, height=3)
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self.name,
            default_interval=Duration.days(1),
            widgets=[
                [cloudwatch.TextWidget(markdown=words, width=_WIDTH, height=9)],
                [status] if alarms else [],
                [
                    _executions("Runs", machine),
                    # Step Functions counts a Map Run's children under the name of the machine with the map's label.
                    _executions("Replicas", f"{machine}/{MAP_LABEL}"),
                    _launches(),
                ],
                [
                    _graph(
                        "Errors of functions", [_labelled(f.metric_errors(), name) for name, f in functions.items()]
                    ),
                    _graph(
                        "Throttles of functions",
                        [_labelled(f.metric_throttles(), name) for name, f in functions.items()],
                    ),
                    _graph(
                        "Duration of functions, p95",
                        [_labelled(f.metric_duration(), name, "p95") for name, f in functions.items()],
                    ),
                ],
                [
                    _graph(
                        "Dead letters",
                        [
                            _labelled(
                                dead_letters.metric_approximate_number_of_messages_visible(), "messages", "Maximum"
                            )
                        ],
                    )
                ],
            ],
        )


def _executions(title: str, machine: str) -> cloudwatch.GraphWidget:
    """How many executions of `machine` begin and end, and how many run.

    Step Functions has no metric for those: they are counted from the left edge of the graph, where at least so many ran
    as end later without having begun.
    """

    def metric(what: str, label: str) -> cloudwatch.Metric:
        return _labelled(
            cloudwatch.Metric(
                namespace="AWS/States", metric_name=f"Executions{what}", dimensions_map={"StateMachineArn": machine}
            ),
            label,
        )

    started = metric("Started", "started")
    ends = {f"e{number}": metric(what, label) for number, (label, what) in enumerate(_ENDS.items())}
    balance = cloudwatch.MathExpression(
        expression=f"RUNNING_SUM(FILL(s, 0) - {' - '.join(f'FILL({name}, 0)' for name in ends)})",
        using_metrics={"s": started, **ends},
        period=_PERIOD,
    )
    running = cloudwatch.MathExpression(
        expression="b - MIN(b)", using_metrics={"b": balance}, label="running, at least", period=_PERIOD
    )
    return _graph(title, [started, *ends.values()], right=[running])


def _launches() -> cloudwatch.GraphWidget:
    reruns = own_metric(RERUNS_WITHIN_HOUR, STACK_SERVICE)
    return _graph(
        "Launches and reruns of replicas",
        [
            _labelled(own_metric(REPLICA_LAUNCHED, function_service("attempt")), "jobs launched"),
            # Every rerun is one value.
            _labelled(reruns, "reruns", "SampleCount"),
        ],
        right=[_labelled(reruns, "most reruns of a replica within an hour", "Maximum")],
    )


def _labelled(metric: cloudwatch.Metric, label: str, statistic: str = "Sum") -> cloudwatch.Metric:
    return metric.with_(label=label, statistic=statistic, period=_PERIOD)


def _graph(
    title: str, left: Sequence[cloudwatch.IMetric], right: Sequence[cloudwatch.IMetric] = ()
) -> cloudwatch.GraphWidget:
    axis = cloudwatch.YAxisProps(min=0, show_units=False)
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        left_y_axis=axis,
        right_y_axis=axis,
        width=_WIDTH // 3,
        height=7,
    )
