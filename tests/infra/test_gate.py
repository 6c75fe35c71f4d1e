"""The static gate's part of cdk-nag: every rule that the stack does not follow has a reason."""

import json
from pathlib import Path

from muster.infra.gate.__main__ import ACCEPTED, violations


def test_a_finding_names_its_rule_without_what_breaks_it(tmp_path: Path) -> None:
    violation = {
        "ruleName": "AwsSolutions-IAM5[Resource::*]",
        "description": "wildcard",
        "violatingConstructs": [{"constructPath": "Muster/A"}, {"constructPath": "Muster/B"}],
    }
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"pluginReports": [{"violations": [violation]}]}), encoding="utf-8")
    line = "AwsSolutions-IAM5[Resource::*]: wildcard"
    assert [*violations(file)] == [("AwsSolutions-IAM5", f"Muster/{name}: {line}") for name in "AB"]


def test_an_accepted_rule_has_a_reason() -> None:
    assert min(map(len, ACCEPTED.values())) >= 15
