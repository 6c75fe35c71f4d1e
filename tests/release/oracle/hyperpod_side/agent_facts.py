"""What hyperpod-elastic-agent says in the cases of `agent_cases.py`.

    python -m tests.release.oracle.hyperpod_side.agent_facts SRC

SRC is the folder `src` of its source distribution. Only the modules that need neither PyTorch nor a server are loaded.
Prints the facts that tests/unit/local/hyperpod/agent_facts.json keeps.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.hyperpod.agent_cases import RULES, STARTS, Clock


def loaded(file: Path) -> ModuleType:
    """A module of the agent, without its package."""
    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[file.stem] = module
    found.loader.exec_module(module)
    return module


def states(module: Any) -> list[list[list[str | None]]]:
    """State and line of every step of every rule."""
    found = []
    for rule, steps in RULES:
        clock = Clock()
        module.time = clock
        evaluator = module.LogEvaluator(rule)
        found.append([])
        for seconds, line in steps:
            clock.now += seconds
            state, matched = evaluator.evaluate(line)
            found[-1].append([state.value, matched])
    return found


def refusals(models: Any) -> list[bool]:
    """Whether each body of /start is refused."""
    found = []
    for body in STARTS:
        try:
            models.StartRequest.model_validate(body)
            found.append(False)
        except ValueError:
            found.append(True)
    return found


def transitions(source: str) -> dict[str, list[str]]:
    """PLR_VALID_TRANSITIONS, read from the source."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PLR_VALID_TRANSITIONS":
            assert isinstance(node.value, ast.Dict)
            return {
                key.attr: sorted(item.attr for item in value.elts)  # type: ignore[attr-defined]  # an AST
                for key, value in zip(node.value.keys, node.value.values, strict=True)
            }
    return {}


def main() -> None:
    """Print the facts."""
    root = Path(sys.argv[1]) / "hyperpod_elastic_agent"
    facts = {
        "transitions": transitions((root / "server" / "util.py").read_text()),
        "rules": states(loaded(root / "logagent" / "log_agent.py")),
        "starts": refusals(loaded(root / "server" / "api_models.py")),
    }
    sys.stdout.write(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
