"""CloudWatch's alarms: each watches a metric that a resource of the stack has, and notifies people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from muster.contract.aws.metric_names import NAMESPACE, RERUNS_WITHIN_HOUR
from tests.infra.variants import Variant
from tests.support.template import FUNCTIONS, ROOT, Template, function

# Not imported from the construct: that imports the CDK, and so starts node, in every worker.
OF_EVERY_RUN = ("plan", "attempt", "react", "settle", "stop")
CALLED_PER_REPLICA = ("attempt", "react")
RERUNS_WITHIN_HOUR_NORMAL = 3
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


def test_a_failed_run_and_a_dead_letter_raise_an_alarm_at_once(alarms: Mapping[str, dict[str, Any]]) -> None:
    assert watched_metric(alarms["run-failed"]) == ("AWS/States", "ExecutionsFailed", f"StateMachineArn={MACHINE}")
    queue = ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName=DeadLetters")
    assert watched_metric(alarms["dead-letters"]) == queue
    assert alarms["dead-letters"]["Statistic"] == "Maximum"
    for name in ("run-failed", "dead-letters"):
        assert (alarms[name]["Threshold"], alarms[name]["DatapointsToAlarm"]) == (0, 1)


def test_the_alarm_of_dead_letters_says_which_commands_to_run(alarms: Mapping[str, dict[str, Any]]) -> None:
    said = alarms["dead-letters"]["AlarmDescription"]
    assert "`muster deadletters list --stack Muster --region REGION`" in said
    assert "`muster deadletters replay`" in said
    assert len(said) <= 1_024  # PutMetricAlarm


def test_failures_of_the_functions_of_every_run_raise_an_alarm_when_they_last(
    alarms: Mapping[str, dict[str, Any]],
) -> None:
    for name in OF_EVERY_RUN:
        alarm = alarms[f"errors-{name}"]
        assert watched_metric(alarm) == ("AWS/Lambda", "Errors", f"FunctionName={name.capitalize()}")
        assert (alarm["Statistic"], alarm["Threshold"]) == ("Sum", 0)
        assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (2, 3)


def test_there_are_as_many_alarms_as_an_account_has_for_free(alarms: Mapping[str, dict[str, Any]]) -> None:
    assert len(alarms) == 10


def test_a_failure_that_no_alarm_watches_shows_as_a_dead_letter_or_a_failed_run(template: Template) -> None:
    called_by_the_workflow = {"Admit"}
    for name in {*FUNCTIONS} - {name.capitalize() for name in OF_EVERY_RUN} - called_by_the_workflow:
        assert "DeadLetters" in function(template, name)["DeadLetterConfig"]["TargetArn"]


def test_lasting_throttles_of_functions_called_per_replica_raise_an_alarm(alarms: Mapping[str, dict[str, Any]]) -> None:
    for name in CALLED_PER_REPLICA:
        alarm = alarms[f"throttles-{name}"]
        assert watched_metric(alarm) == ("AWS/Lambda", "Throttles", f"FunctionName={name.capitalize()}")
        assert alarm["DatapointsToAlarm"] * alarm["Period"] == 900


def test_reruns_above_normal_raise_one_alarm_an_hour(alarms: Mapping[str, dict[str, Any]]) -> None:
    alarm = alarms["reruns-above-normal"]
    assert watched_metric(alarm) == (NAMESPACE, RERUNS_WITHIN_HOUR, "service=muster")
    assert (alarm["Statistic"], alarm["Threshold"]) == ("Maximum", RERUNS_WITHIN_HOUR_NORMAL)
    assert alarm["DatapointsToAlarm"] == 1
    assert alarm["EvaluationPeriods"] * alarm["Period"] == 3_600


def test_every_alarm_notifies_people_is_off_while_nothing_runs_and_is_explained(
    alarms: Mapping[str, dict[str, Any]],
) -> None:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    for name, alarm in alarms.items():
        assert alarm["AlarmActions"] == [PEOPLE], name
        # A dead letter is still there when SQS no longer measures the queue, which is not used.
        assert alarm["TreatMissingData"] == ("ignore" if name == "dead-letters" else "notBreaching")
        assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
        # Billed by their metrics, which the embedded cloud takes one by one only.
        assert "Metrics" not in alarm
        family = "-".join([name.partition("-")[0], "FUNCTION"]) if name.startswith(("errors", "throttles")) else name
        assert f"| `Muster-{family}` |" in page, name


def test_the_page_of_costs_counts_the_alarms(alarms: Mapping[str, dict[str, Any]]) -> None:
    costs = (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")
    assert f"{len(alarms)} alarms" in costs
    assert f"${len(alarms) * 0.1:.2f}" in costs


def test_only_alarms_of_this_account_may_notify_people(template: Template) -> None:
    policies = [template.resolve(p["Properties"]) for p in template.of_type("AWS::SNS::TopicPolicy").values()]
    [policy] = [policy for policy in policies if policy["Topics"] == [PEOPLE]]
    [statement] = [item for item in policy["PolicyDocument"]["Statement"] if item["Effect"] == "Allow"]
    assert (statement["Action"], statement["Resource"]) == ("sns:Publish", PEOPLE)
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "ACCOUNT"}}


def test_a_deployment_without_them_has_none_of_what_costs_at_rest(variant: Variant) -> None:
    template = variant("unwatched")
    assert not template.of_type("AWS::CloudWatch::Alarm")
    assert not template.of_type("AWS::CloudWatch::Dashboard")
    assert "DashboardUrl" not in template.body["Outputs"]
    policies = template.of_type("AWS::SNS::TopicPolicy").values()
    statements = [s for p in policies for s in template.resolve(p["Properties"])["PolicyDocument"]["Statement"]]
    publishers = [item["Principal"]["Service"] for item in statements if item["Effect"] == "Allow"]
    assert publishers == ["s3.amazonaws.com"]
