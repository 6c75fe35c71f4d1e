"""CloudWatch's alarms: what people are told of Muster's health while nobody looks.

The alarms of a run, its launch gate and its deadline, are something else: schedules, see alarm_function.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.own_metric import own_metric
from muster.contract.aws.metric_names import RERUNS_WITHIN_HOUR, STACK_SERVICE

RERUNS_WITHIN_HOUR_NORMAL = 3
"""A replica is seldom rerun twice within an hour, even where spot capacity is scarce: each wait doubles."""
# Ten alarms in all: CloudWatch gives an account so many for nothing. The functions of every run are watched, and for
# throttles those that are called for every replica; what keeps another one away for good is a failed run or a dead
# letter.
OF_EVERY_RUN = ("plan", "attempt", "react", "settle", "stop")
CALLED_PER_REPLICA = ("attempt", "react")
_LOOK = Duration.minutes(5)


@dataclass(frozen=True)
class _Lasting:
    """How many of the last `periods` looks must have found too much."""

    found: int = 1
    periods: int = 1


_AT_ONCE = _Lasting()
_AGAIN = _Lasting(2, 3)  # one failure is repaired by its retry
_FOR_15_MINUTES = _Lasting(3, 3)  # Lambda repeats what it throttles: a burst of events passes
_FOR_AN_HOUR = _Lasting(1, 12)  # one notice for an hour's reruns, not one for each


class HealthAlarms(Construct):
    """One alarm, and one metric, for each thing that somebody can act upon; all of them tell `topic`.

    One metric each, because alarms are billed by their metrics: an alarm on the sum of ten costs as much as ten alarms,
    and does not say which function it was.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        state_machine: sfn.StateMachine,
        functions: Mapping[str, lambda_.Function],
        dead_letters: sqs.Queue,
        topic: sns.Topic,
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        # The service may publish for alarms of this account, for nobody else's.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )
        self._tell = actions.SnsAction(topic)
        self._prefix = stack.stack_name
        self.alarms = [
            self._alarm("run-failed", state_machine.metric_failed(), "a run has failed; its execution says why"),
            self._alarm(
                "dead-letters",
                dead_letters.metric_approximate_number_of_messages_visible(),
                "an event was given up; it lies in the dead-letter queue, with the reason",
                statistic="Maximum",
                # SQS stops measuring a queue that nobody has used for six hours: the letters are still there.
                missing=cloudwatch.TreatMissingData.IGNORE,
            ),
            self._alarm(
                "reruns-above-normal",
                own_metric(RERUNS_WITHIN_HOUR, STACK_SERVICE),
                f"a replica was rerun more than {RERUNS_WITHIN_HOUR_NORMAL} times within an hour",
                statistic="Maximum",
                normal=RERUNS_WITHIN_HOUR_NORMAL,
                lasting=_FOR_AN_HOUR,
            ),
            *(
                self._alarm(
                    f"errors-{name}",
                    functions[name].metric_errors(),
                    f"the function {name} fails again and again; its log says why",
                    lasting=_AGAIN,
                )
                for name in OF_EVERY_RUN
            ),
            *(
                self._alarm(
                    f"throttles-{name}",
                    functions[name].metric_throttles(),
                    f"the function {name} is throttled: the account has too few concurrent executions for its runs",
                    lasting=_FOR_15_MINUTES,
                )
                for name in CALLED_PER_REPLICA
            ),
        ]

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        what: str,
        *,
        statistic: str = "Sum",
        normal: int = 0,
        lasting: _Lasting = _AT_ONCE,
        # Where nothing runs nothing is measured.
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> cloudwatch.Alarm:
        """An alarm for more than `normal` of `metric` within five minutes."""
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._prefix}-{name}",
            alarm_description=f"Muster: {what}. What to do: docs/failures.md, The alarms of the stack.",
            metric=metric.with_(period=_LOOK, statistic=statistic),
            threshold=normal,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=lasting.periods,
            datapoints_to_alarm=lasting.found,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(self._tell)
        return alarm
