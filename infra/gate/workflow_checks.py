"""The workflow's definition as it is deployed in each partition."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.infra.gate.finding import Finding
from muster.infra.gate.tools import node_program, run
from muster.infra.gate.variants import Resolved

_PROBLEM = re.compile(r"^ ([A-Z_]+): (.+)$", re.MULTILINE)


def check_definition(resolved: Resolved, partition: str, folder: Path) -> list[Finding]:
    """What asl-validator finds in the definition of `resolved`, and states whose resource another partition has.

    Raises:
        GateError: asl-validator could not run.
    """
    [machine] = resolved.of_type("AWS::StepFunctions::StateMachine").values()
    text = re.sub(
        r"\$\{(\w+)\}",
        lambda found: machine.get("DefinitionSubstitutions", {}).get(found[1], found[0]),
        machine["DefinitionString"],
    )
    file = folder / f"definition-{partition}.json"
    file.write_text(text, encoding="utf-8")
    outcome = run([node_program("asl-validator"), "--json-path", str(file)], expected=(0, 1))
    problems = _PROBLEM.findall(outcome.stderr) or [("INVALID", outcome.stderr)]
    return [
        *(Finding("asl-validator", code, partition, said) for code, said in problems if outcome.returncode),
        *_foreign_resources(json.loads(text), partition),
    ]


def _foreign_resources(machine: dict[str, Any], partition: str) -> Iterator[Finding]:
    """States whose resource is of another partition, or has a placeholder that the template does not fill.

    Such a state ends with States.Runtime, which nothing catches. No checker of the language looks at it.
    """
    for name, state in machine.get("States", {}).items():
        resource = state.get("Resource", "")
        if state.get("Type") == "Task" and not resource.startswith(f"arn:{partition}:states:::"):
            message = f"the resource is {resource or 'missing'}; it begins with arn:{partition}:states:::"
            yield Finding("asl-validator", "RESOURCE_PARTITION", f"{partition} {name}", message)
        if "${" in json.dumps({key: value for key, value in state.items() if key != "ItemProcessor"}):
            yield Finding("asl-validator", "PLACEHOLDER", f"{partition} {name}", "a placeholder is not filled")
        yield from _foreign_resources(state.get("ItemProcessor", {}), partition)
