"""Parliament: IAM's own grammar. It knows every action, its resources and its conditions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from muster.infra.gate.finding import Finding
from muster.infra.gate.template_checks import without_digest
from muster.infra.gate.tools import run, venv_program
from muster.infra.gate.variants import Resolved


def check_policies(everywhere: Mapping[str, Resolved], folder: Path) -> list[Finding]:
    """What parliament finds in the roles' policies of each template, which are written below `folder`.

    Raises:
        GateError: parliament could not run.
    """
    policies = folder / "policies"
    for name, resolved in everywhere.items():
        (policies / name).mkdir(parents=True)
        for role, properties in resolved.of_type("AWS::IAM::Role").items():
            for policy in properties.get("Policies", []):
                _write(policies / name, f"{without_digest(role)}.{policy['PolicyName']}", policy["PolicyDocument"])
        for policy, properties in resolved.of_type("AWS::IAM::Policy").items():
            _write(policies / name, without_digest(policy), properties["PolicyDocument"])
    command = [
        *(venv_program("parliament"), "--directory", str(policies), "--include-community-auditors", "--json"),
        *("--minimum_severity", "LOW"),
    ]
    # One document in each line.
    return [_finding(json.loads(line)) for line in run(command, expected=(0, 1)).stdout.splitlines()]


def _write(folder: Path, name: str, document: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


def _finding(item: dict[str, object]) -> Finding:
    location = item["location"]
    place = Path(str(location["filepath"])).stem if isinstance(location, dict) else ""
    said = item.get("detail") or item.get("description") or item.get("title")
    return Finding("parliament", str(item["issue"]), place, said if isinstance(said, str) else json.dumps(said))
