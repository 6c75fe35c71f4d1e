"""The stack's dashboard in CloudWatch: runs, launches, reruns, the functions' health, and how to start a run."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from muster.contract.names import REPLICA_LAUNCHED, RERUNS_WITHIN_HOUR, function_service
from muster.infra.monitoring.health_alarms import WatchedResources, muster_metric
from muster.infra.workflow.workflow_definition import MAP_LABEL

_WIDTH = 24  # CloudWatch: columns of a dashboard
_PERIOD = Duration.minutes(5)
_ENDS = {"succeeded": "Succeeded", "failed": "Failed", "timed out": "TimedOut", "stopped": "Aborted"}


class Dashboard(Construct):
    """At most 50 metrics: an account has three dashboards of that size for free. `text` is Markdown."""

    def __init__(
        self, scope: Construct, watched: WatchedResources, *, alarms: Sequence[cloudwatch.Alarm], text: str
    ) -> None:
        super().__init__(scope, "Dashboard")
        machine = watched.state_machine.state_machine_arn
        # The names of dashboards are unique in an account, over all regions.
        self.name = f"{Stack.of(self).stack_name}-{Aws.REGION}"
        status = cloudwatch.AlarmStatusWidget(title="Alarms", alarms=alarms, width=_WIDTH, height=3)
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self.name,
            default_interval=Duration.days(1),
            widgets=[
                [cloudwatch.TextWidget(markdown=text, width=_WIDTH, height=9)],
                [status] if alarms else [],
                [
                    _executions("Runs", machine),
                    # Step Functions counts the children of a Map Run under the machine's name with the map's label.
                    _executions("Replicas", f"{machine}/{MAP_LABEL}"),
                    _launches(watched.job_prefix),
                ],
                _functions(watched),
                [_dead_letters(watched)],
            ],
        )


def _functions(watched: WatchedResources) -> list[cloudwatch.IWidget]:
    functions = watched.functions.items()
    return [
        _graph("Errors of functions", [_labelled(f.metric_errors(), name) for name, f in functions]),
        _graph("Throttles of functions", [_labelled(f.metric_throttles(), name) for name, f in functions]),
        _graph("Duration of functions, p95", [_labelled(f.metric_duration(), name, "p95") for name, f in functions]),
    ]


def _dead_letters(watched: WatchedResources) -> cloudwatch.GraphWidget:
    messages = watched.dead_letters.metric_approximate_number_of_messages_visible()
    return _graph("Dead letters", [_labelled(messages, "messages", "Maximum")])


def _executions(title: str, machine: str) -> cloudwatch.GraphWidget:
    """How many executions of `machine` start and end, and how many are running.

    Step Functions has no metric for running executions. They are counted from the left edge of the graph: at that time
    at least as many were running as end later without a start on the graph.
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


def _launches(job_prefix: str) -> cloudwatch.GraphWidget:
    reruns = muster_metric(RERUNS_WITHIN_HOUR, job_prefix)
    return _graph(
        "Launches and reruns of replicas",
        [
            _labelled(muster_metric(REPLICA_LAUNCHED, function_service(job_prefix, "attempt")), "jobs launched"),
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
