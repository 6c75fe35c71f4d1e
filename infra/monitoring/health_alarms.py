"""What is watched of the stack, and the CloudWatch alarms on its health; they notify people.

The launch gate and the deadline of a run are something else: timers, which the function plan creates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from muster.contract.names import METRICS_NAMESPACE, METRICS_SERVICE, RERUNS_WITHIN_HOUR
from muster.infra.policy import allow_publishing


@dataclass(frozen=True)
class WatchedResources:
    """The resources of the stack that have metrics in CloudWatch; the functions by their names.

    `job_prefix` is the stack's mark on Muster's own metrics.
    """

    state_machine: sfn.StateMachine
    functions: Mapping[str, lambda_.Function]
    dead_letters: sqs.Queue
    job_prefix: str


def muster_metric(name: str, service: str) -> cloudwatch.Metric:
    """Muster's own metric `name` as `service` counts it: one function, or several into one series."""
    return cloudwatch.Metric(namespace=METRICS_NAMESPACE, metric_name=name, dimensions_map={METRICS_SERVICE: service})


RERUNS_WITHIN_HOUR_NORMAL = 3
"""A replica is seldom rerun twice within an hour, even while spot capacity is scarce: each delay doubles."""
# Ten alarms in all, which is how many CloudWatch gives an account for free. Errors are watched of the functions that
# every run calls, throttles of those that are called for every replica. A lasting failure of another function shows as
# a failed run or a dead letter.
OF_EVERY_RUN = ("plan", "attempt", "react", "settle", "stop")
CALLED_PER_REPLICA = ("attempt", "react")
_PERIOD = Duration.minutes(5)


@dataclass(frozen=True)
class _Lasting:
    """How many of the last `periods` of five minutes must be above normal."""

    found: int = 1
    periods: int = 1


_AT_ONCE = _Lasting()
_AGAIN = _Lasting(2, 3)  # a single failure is repaired by its retry
_FOR_15_MINUTES = _Lasting(3, 3)  # Lambda retries throttled calls: a burst of events passes
_FOR_AN_HOUR = _Lasting(1, 12)  # one notification for an hour's reruns, not one for each


@dataclass(frozen=True)
class _AlarmRule:
    """An alarm for more than `normal` of `metric` within five minutes; `what` says what is wrong."""

    name: str
    metric: cloudwatch.Metric
    what: str
    statistic: str = "Sum"
    normal: int = 0
    lasting: _Lasting = _AT_ONCE
    # Nothing is measured while nothing runs.
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING


class HealthAlarms(Construct):
    """One alarm, on one metric, for each problem that a person can act on; all of them notify `topic`.

    One metric each, because alarms are billed by their metrics: an alarm on the sum of ten metrics costs as much as ten
    alarms and does not say which function it was.
    """

    def __init__(self, scope: Construct, construct_id: str, watched: WatchedResources, *, topic: sns.Topic) -> None:
        super().__init__(scope, construct_id)
        allow_publishing(topic, "AlarmsOfThisAccount", "cloudwatch.amazonaws.com")
        notify = actions.SnsAction(topic)
        self.alarms = [self._alarm(rule) for rule in _rules(watched, Stack.of(self))]
        for alarm in self.alarms:
            alarm.add_alarm_action(notify)

    def _alarm(self, rule: _AlarmRule) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            rule.name,
            alarm_name=f"{Stack.of(self).stack_name}-{rule.name}",
            alarm_description=f"Muster: {rule.what}. What to do: Muster's guide on failures, The alarms of the stack.",
            metric=rule.metric.with_(period=_PERIOD, statistic=rule.statistic),
            threshold=rule.normal,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=rule.lasting.periods,
            datapoints_to_alarm=rule.lasting.found,
            treat_missing_data=rule.missing,
        )


def _rules(watched: WatchedResources, stack: Stack) -> Iterator[_AlarmRule]:
    yield _AlarmRule(
        "run-failed",
        watched.state_machine.metric_failed(),
        "a run failed; its execution says why",
    )
    yield _AlarmRule(
        "dead-letters",
        watched.dead_letters.metric_approximate_number_of_messages_visible(),
        f"an event could not be handled. `muster deadletters list --stack {stack.stack_name} --region {stack.region}` "
        "shows which and why; `muster deadletters replay` lets the function try again",
        statistic="Maximum",
        # SQS stops measuring a queue that is not used for six hours, although its messages are still there.
        missing=cloudwatch.TreatMissingData.IGNORE,
    )
    yield _AlarmRule(
        "reruns-above-normal",
        muster_metric(RERUNS_WITHIN_HOUR, watched.job_prefix),
        f"a replica was rerun more than {RERUNS_WITHIN_HOUR_NORMAL} times within an hour",
        statistic="Maximum",
        normal=RERUNS_WITHIN_HOUR_NORMAL,
        lasting=_FOR_AN_HOUR,
    )
    for name in OF_EVERY_RUN:
        what = f"the function {name} failed repeatedly; its log says why"
        yield _AlarmRule(f"errors-{name}", watched.functions[name].metric_errors(), what, lasting=_AGAIN)
    for name in CALLED_PER_REPLICA:
        what = f"the function {name} is throttled: the account has too few concurrent executions for its runs"
        yield _AlarmRule(f"throttles-{name}", watched.functions[name].metric_throttles(), what, lasting=_FOR_15_MINUTES)
