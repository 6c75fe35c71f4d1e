"""CloudWatch's alarms: each watches a metric that a resource of the stack has, and notifies people."""

from collections.abc import Mapping
from typing import Any

import pytest

from muster.contract.names import METRICS_NAMESPACE, RERUNS_WITHIN_HOUR
from tests.infra.variants import Variant
from tests.support.template import ROOT, Template

PEOPLE = "arn:aws:sns:REGION:ACCOUNT:Notify"
MACHINE = "arn:aws:states:REGION:ACCOUNT:stateMachine:Workflow"


@pytest.fixture(scope="module")
def alarms(template: Template) -> Mapping[str, dict[str, Any]]:
    """The alarms' properties by the end of their names."""
    found = [template.resolve(a["Properties"]) for a in template.of_type("AWS::CloudWatch::Alarm").values()]
    return {alarm["AlarmName"].removeprefix("Muster-"): alarm for alarm in found}


def watched_metric(alarm: Mapping[str, Any]) -> tuple[str, str, str]:
    [dimension] = alarm["Dimensions"]
    return alarm["Namespace"], alarm["MetricName"], f"{dimension['Name']}={dimension['Value']}"


def test_each_alarm_watches_a_metric_of_the_stack_for_as_long_as_a_failure_must_last(
    alarms: Mapping[str, dict[str, Any]],
) -> None:
    queue = ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName=DeadLetters")
    wanted: dict[str, tuple[tuple[str, str, str], str, int, int]] = {
        "run-failed": (("AWS/States", "ExecutionsFailed", f"StateMachineArn={MACHINE}"), "Sum", 0, 1),
        "dead-letters": (queue, "Maximum", 0, 1),
        "reruns-above-normal": ((METRICS_NAMESPACE, RERUNS_WITHIN_HOUR, "service=muster"), "Maximum", 3, 1),
    }
    for name in ("plan", "attempt", "react", "settle", "stop"):
        wanted[f"errors-{name}"] = (("AWS/Lambda", "Errors", f"FunctionName={name.capitalize()}"), "Sum", 0, 2)
    for name in ("attempt", "react"):
        wanted[f"throttles-{name}"] = (("AWS/Lambda", "Throttles", f"FunctionName={name.capitalize()}"), "Sum", 0, 3)
    found = {
        name: (watched_metric(alarm), alarm["Statistic"], alarm["Threshold"], alarm["DatapointsToAlarm"])
        for name, alarm in alarms.items()
    }
    assert found == wanted
    assert len(found) == 10, "as many as an account has for free"
    assert alarms["throttles-react"]["Period"] * 3 == 900
    assert alarms["reruns-above-normal"]["EvaluationPeriods"] * alarms["reruns-above-normal"]["Period"] == 3_600


def test_every_alarm_notifies_people_is_off_while_nothing_runs_and_is_explained(
    alarms: Mapping[str, dict[str, Any]],
) -> None:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    assert f"{len(alarms)} alarms" in (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")
    for name, alarm in alarms.items():
        assert alarm["AlarmActions"] == [PEOPLE], name
        # A dead letter is still there when SQS no longer measures the queue, which is not used.
        assert alarm["TreatMissingData"] == ("ignore" if name == "dead-letters" else "notBreaching")
        assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
        # Billed by their metrics, which the embedded cloud takes one by one only.
        assert "Metrics" not in alarm
        family = "-".join([name.partition("-")[0], "FUNCTION"]) if name.startswith(("errors", "throttles")) else name
        assert f"| `Muster-{family}` |" in page, name


def test_only_alarms_of_this_account_may_notify_people(template: Template) -> None:
    policies = [template.resolve(p["Properties"]) for p in template.of_type("AWS::SNS::TopicPolicy").values()]
    [policy] = [policy for policy in policies if policy["Topics"] == [PEOPLE]]
    [statement] = [item for item in policy["PolicyDocument"]["Statement"] if item["Effect"] == "Allow"]
    assert (statement["Action"], statement["Resource"]) == ("sns:Publish", PEOPLE)
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "ACCOUNT"}}


def test_a_deployment_without_them_has_none_of_what_costs_at_rest(variant: Variant) -> None:
    template = variant("other")
    assert not template.of_type("AWS::CloudWatch::Alarm")
    assert not template.of_type("AWS::CloudWatch::Dashboard")
    assert "DashboardUrl" not in template.body["Outputs"]
    policies = template.of_type("AWS::SNS::TopicPolicy").values()
    statements = [s for p in policies for s in template.resolve(p["Properties"])["PolicyDocument"]["Statement"]]
    publishers = [item["Principal"]["Service"] for item in statements if item["Effect"] == "Allow"]
    assert publishers == ["s3.amazonaws.com"]
