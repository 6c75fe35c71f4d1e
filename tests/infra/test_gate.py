"""The static gate: a finding fails it, unless an exception with a reason covers it."""

import json
from pathlib import Path

import pytest

from muster.infra.gate.__main__ import EXCEPTIONS, report
from muster.infra.gate.finding import AcceptedPlace, Finding, GateError, judge, read_exceptions
from muster.infra.gate.synthesis import nag_findings
from muster.infra.gate.variants import PLACES, Resolved
from muster.infra.gate.workflow_checks import check_definitions

FOUND = Finding("cdk-nag", "AwsSolutions-SNS3", "Muster/People", "takes plain HTTP")


def test_a_finding_fails_the_gate_until_an_exception_covers_it() -> None:
    other = Finding("cdk-nag", FOUND.rule, "Muster/Inbox", "takes plain HTTP")
    lines = report(*judge([FOUND, FOUND, other], [AcceptedPlace("cdk-nag", FOUND.rule, "**/Inbox")]), EXCEPTIONS)
    assert lines[0] == str(FOUND)
    assert lines[1].startswith("1 findings")
    # Only `**` stands for other text; and an exception is of one checker.
    for narrow in (AcceptedPlace("cdk-nag", "AwsSolutions-*", "**"), AcceptedPlace("cfn-lint", FOUND.rule, "**")):
        assert judge([FOUND], [narrow]) == ([FOUND], [narrow])


def test_an_exception_that_matches_nothing_any_more_fails_the_gate() -> None:
    stale = AcceptedPlace("cfn-lint", "W3005", "Gone")
    [line] = report(*judge([FOUND], [stale, AcceptedPlace("cdk-nag", "**", "**")]), EXCEPTIONS)
    assert "cfn-lint W3005 in Gone" in line


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "exceptions.toml"
    row = 'tool = "a"\nrule = "b"\nplaces = ["c"]\n'
    for text, problem in ((row, "needs places, reason"), (f'{row}reason = "ok"', "the reason has at least")):
        file.write_text(f"[[exception]]\n{text}\n", encoding="utf-8")
        with pytest.raises(GateError, match=problem):
            read_exceptions(file)


def test_a_synthesis_without_a_report_is_no_clean_synthesis(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="did not run"):
        nag_findings(tmp_path)


def test_a_finding_in_a_definition_names_the_definition(tmp_path: Path) -> None:
    states = {
        "Next": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Next": "Gone"},
        "Other": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": True},
    }
    definition = json.dumps({"StartAt": "Next", "States": states})
    machine = {"Type": "AWS::StepFunctions::StateMachine", "Properties": {"DefinitionString": definition}}
    stack = Resolved({"Resources": {"Workflow": machine}}, PLACES[0])
    found = check_definitions({"full-aws": (stack, "aws"), "full-aws-cn": (stack, "aws-cn")}, tmp_path)
    assert {(finding.rule, finding.place) for finding in found} >= {
        ("MISSING_TRANSITION_TARGET", "full-aws"),
        ("MISSING_TRANSITION_TARGET", "full-aws-cn"),
        ("RESOURCE_PARTITION", "aws-cn Other"),
    }
