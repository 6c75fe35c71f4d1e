"""The static gate: each checker finds a planted defect, and an exception without a finding fails the gate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.infra.gate.__main__ import EXCEPTIONS, report
from muster.infra.gate.finding import AcceptedPlace, Finding, GateError, judge, read_exceptions
from muster.infra.gate.policy_checks import check_policies
from muster.infra.gate.source_checks import find_unused, scan_security
from muster.infra.gate.synthesis import nag_findings
from muster.infra.gate.template_checks import lint, scan
from muster.infra.gate.variants import PLACES, Resolved
from muster.infra.gate.workflow_checks import check_definition
from tests.support.template import ROOT

AWS = PLACES[0]
FOUND = Finding("checkov", "CKV_AWS_26", "AWS::SNS::Topic.People", "not encrypted")

_PLANTED_STACK = """
import sys
from pathlib import Path
from muster.infra.gate.synthesis import checked_app, write_assembly
app = checked_app(Path(sys.argv[1]))
from aws_cdk import Stack, aws_iam as iam, aws_sns as sns
stack = Stack(app, "Planted", analytics_reporting=False)
sns.Topic(stack, "Topic")
role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
role.add_to_policy(iam.PolicyStatement(actions=["s3:*"], resources=["*"]))
write_assembly(app)
"""


def template(kind: str, **properties: object) -> dict[str, Any]:
    return {"Resources": {"Planted": {"Type": kind, "Properties": properties}}}


def written(folder: Path, body: dict[str, Any]) -> Path:
    file = folder / "template.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    return file


def role(*statements: dict[str, object]) -> dict[str, Any]:
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    return template("AWS::IAM::Role", Policies=[{"PolicyName": "Function", "PolicyDocument": document}])


def machine(resource: str, transition: str = "Next") -> dict[str, Any]:
    states = {
        "Work": {"Type": "Task", "Resource": resource, "Parameters": {"FunctionName": "f"}, transition: "Done"},
        "Done": {"Type": "Succeed"},
    }
    return template(
        "AWS::StepFunctions::StateMachine",
        DefinitionString=json.dumps({"StartAt": "Work", "States": states}),
        DefinitionSubstitutions={"Partition": {"Ref": "AWS::Partition"}},
    )


def rules(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings}


def test_cdk_nag_finds_a_wildcard_and_a_topic_that_takes_plain_http(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _PLANTED_STACK, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    found = nag_findings(tmp_path)
    assert Finding("cdk-nag", "AwsSolutions-SNS3", "Planted/Topic/Resource", found[0].message) in found
    assert {"AwsSolutions-IAM5[Action::s3:*]", "NIST.800.53.R5-SNSEncryptedKMS"} <= rules(found)


def test_a_synthesis_without_a_report_is_no_clean_synthesis(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="did not run"):
        nag_findings(tmp_path)


def test_cfn_lint_finds_a_value_that_is_not_allowed(tmp_path: Path) -> None:
    found = lint(written(tmp_path, template("AWS::SQS::Queue", VisibilityTimeout=50_000)))
    assert [(finding.rule, finding.place) for finding in found] == [
        ("E3034", "Resources/Planted/Properties/VisibilityTimeout")
    ]


def test_cfn_lint_finds_a_type_that_a_region_lacks(tmp_path: Path) -> None:
    found = lint(written(tmp_path, template("AWS::Bedrock::Guardrail", Name="g", BlockedInputMessaging="no")))
    assert any("cn-north-1" in finding.message for finding in found)


def test_checkov_finds_an_unencrypted_topic(tmp_path: Path) -> None:
    found = scan(written(tmp_path, template("AWS::SNS::Topic", TopicName="t")))
    assert ("CKV_AWS_26", "AWS::SNS::Topic.Planted") in [(finding.rule, finding.place) for finding in found]


def test_checkov_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "template.json"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(GateError):
        scan(file)


def test_parliament_finds_an_action_that_does_not_exist(tmp_path: Path) -> None:
    body = role({"Effect": "Allow", "Action": "s3:GetObjct", "Resource": "arn:aws:s3:::b/*"})
    [found] = check_policies(Resolved(body, AWS), tmp_path / "policies")
    assert (found.rule, found.place) == ("UNKNOWN_ACTION", "Planted.Function")


def test_parliament_finds_a_resource_of_another_kind(tmp_path: Path) -> None:
    body = role({"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket"})
    assert rules(check_policies(Resolved(body, AWS), tmp_path / "policies")) == {"RESOURCE_MISMATCH"}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.partition)
def test_a_good_definition_passes_in_each_partition(tmp_path: Path, place: Any) -> None:
    body = machine("arn:${Partition}:states:::lambda:invoke")
    assert check_definition(Resolved(body, place), place.partition, tmp_path) == []


def test_asl_validator_finds_a_typo(tmp_path: Path) -> None:
    body = machine("arn:${Partition}:states:::lambda:invoke", transition="Nxt")
    assert "SCHEMA_VALIDATION_FAILED" in rules(check_definition(Resolved(body, AWS), AWS.partition, tmp_path))


def test_a_state_of_another_partition_is_found(tmp_path: Path) -> None:
    body, china = machine("arn:aws:states:::lambda:invoke"), PLACES[2]
    [found] = check_definition(Resolved(body, china), china.partition, tmp_path)
    assert (found.rule, found.place) == ("RESOURCE_PARTITION", "aws-cn Work")


def test_a_placeholder_that_nothing_fills_is_found(tmp_path: Path) -> None:
    found = check_definition(Resolved(machine("arn:${Partition}:states:::${Missing}"), AWS), AWS.partition, tmp_path)
    assert "PLACEHOLDER" in rules(found)


def test_bandit_finds_a_shell(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("import subprocess\nsubprocess.run(name, shell=True)\n", encoding="utf-8")
    found = scan_security(tmp_path, ["code.py"])
    assert ("B602", "code.py") in [(finding.rule, finding.place) for finding in found]


def test_bandit_names_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def (", encoding="utf-8")
    assert rules(scan_security(tmp_path, ["code.py"])) == {"unreadable"}


def test_vulture_finds_an_unused_function(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def used(): ...\ndef unused(): ...\nused()\n", encoding="utf-8")
    [found] = find_unused(tmp_path, ["code.py"])
    assert (found.rule, found.place) == ("unused function", "code.py:unused")


def test_vulture_finds_code_that_is_never_reached(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def used():\n    return 1\n    print(2)\nused()\n", encoding="utf-8")
    [found] = find_unused(tmp_path, ["code.py"])
    assert found.rule.startswith("unreachable code")


def test_a_finding_fails_the_gate_and_says_what_to_do() -> None:
    lines = report(*judge([FOUND, FOUND], []), EXCEPTIONS)
    assert lines[0] == "checkov CKV_AWS_26\n  AWS::SNS::Topic.People: not encrypted"
    assert lines[1].startswith("1 findings. Mend them")


def test_an_exception_covers_its_finding_alone() -> None:
    accepted = [AcceptedPlace("checkov", "CKV_AWS_26", "AWS::SNS::**")]
    other = Finding("checkov", "CKV_AWS_26", "AWS::SQS::Queue.Q", "not encrypted")
    assert judge([FOUND, other], accepted) == ([other], [])
    assert judge([FOUND], [AcceptedPlace("parliament", FOUND.rule, "**")])[0] == [FOUND]


def test_a_single_star_is_a_star() -> None:
    narrow = AcceptedPlace("cdk-nag", "AwsSolutions-IAM5[Resource::*]", "Stack/Role")
    wide = Finding("cdk-nag", "AwsSolutions-IAM5[Resource::arn:aws:s3:::b/*]", "Stack/Role", "wildcard")
    assert judge([wide], [narrow]) == ([wide], [narrow])


def test_an_exception_that_matches_nothing_any_more_fails_the_gate() -> None:
    stale = AcceptedPlace("checkov", "CKV_AWS_27", "AWS::SQS::Queue.Gone")
    lines = report(*judge([FOUND], [stale, AcceptedPlace("checkov", "CKV_AWS_26", "**")]), EXCEPTIONS)
    assert [line.partition(": ")[2] for line in lines] == [
        "checkov CKV_AWS_27 in AWS::SQS::Queue.Gone matches nothing any more: remove it"
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('tool = "a"\nrule = "b"\nplaces = ["c"]', "needs places, reason, rule, tool"),
        ('tool = "a"\nrule = "b"\nplaces = []\nreason = "It is right as it is."', "at least one place"),
        ('tool = "a"\nrule = "b"\nplaces = ["c"]\nreason = "ok"', "the reason has at least"),
    ],
)
def test_a_row_without_a_reason_is_refused(tmp_path: Path, row: str, problem: str) -> None:
    file = tmp_path / "exceptions.toml"
    file.write_text(f"[[exception]]\n{row}\n", encoding="utf-8")
    with pytest.raises(GateError, match=problem):
        read_exceptions(file)


def test_every_exception_of_ours_has_a_reason() -> None:
    assert len(read_exceptions(EXCEPTIONS)) > 10
