"""The workflow's definition as it is deployed in each partition."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from muster.infra.gate.finding import Finding
from muster.infra.gate.tools import node_program, run
from muster.infra.gate.variants import Resolved

_DEFINITION = re.compile(r"definition-([\w-]+)\.json\" is invalid")
_PROBLEM = re.compile(r"^ ?([A-Z_]+): (.+)$")


def check_definitions(everywhere: Mapping[str, tuple[Resolved, str]], folder: Path) -> list[Finding]:
    """What asl-validator finds in each definition, and states whose resource another partition has.

    `everywhere` has a template and its partition by a name of its own; the definitions are written to `folder`.

    Raises:
        GateError: asl-validator could not run.
    """
    found: list[Finding] = []
    files: list[Path] = []
    for name, (resolved, partition) in everywhere.items():
        text = _definition(resolved)
        files.append(folder / f"definition-{name}.json")
        files[-1].write_text(text, encoding="utf-8")
        found += _foreign_resources(json.loads(text), partition)
    arguments = [argument for file in files for argument in ("--json-path", str(file))]
    outcome = run([node_program("asl-validator"), *arguments], expected=(0, 1))
    return found + (list(_problems(outcome.stderr)) if outcome.returncode else [])


def _definition(resolved: Resolved) -> str:
    [machine] = resolved.of_type("AWS::StepFunctions::StateMachine").values()
    substitutions: dict[str, str] = machine.get("DefinitionSubstitutions", {})
    return re.sub(r"\$\{(\w+)\}", lambda found: substitutions.get(found[1], found[0]), machine["DefinitionString"])


def _problems(said: str) -> Iterator[Finding]:
    """A finding a line of asl-validator, which names the file above; all of its text where no line is understood."""
    name, understood = "", False
    for line in said.splitlines():
        if heading := _DEFINITION.search(line):
            name = heading[1]
        elif problem := _PROBLEM.match(line):
            understood = True
            yield Finding("asl-validator", problem[1], name, problem[2])
    if not understood:
        yield Finding("asl-validator", "INVALID", name, said)


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
