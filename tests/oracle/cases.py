"""The recipes that both sides resolve: one file each, in the shape of a public family."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Case:
    """A recipe, what its user adds, and the job that runs it.

    Args:
        name: the family and the file.
        about: one line.
        base: the template of the hub, as text; without one, `recipe` is the base.
        spec: the override specification, as JSON text.
        recipe: the user's recipe, as text.
        overrides: values by path or name.
        values: values set directly, by the names of the specification.
        job: what the job needs besides the recipe; without one, the recipe is only resolved.
        shown: whether the SDK can show the resolved recipe.
    """

    name: str
    about: str
    base: str | None = None
    spec: str | None = None
    recipe: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] | None = None
    shown: bool = True

    def question(self) -> dict[str, Any]:
        """The case as the SDK's side takes it."""
        return {
            "name": self.name,
            "base": self.base,
            "spec": json.loads(self.spec) if self.spec else None,
            "recipe": self.recipe,
            "overrides": self.overrides,
            "values": self.values,
            "job": self.job,
        }


def cases() -> list[Case]:
    """All recipes, by their names."""
    return [_case(path) for path in sorted(HERE.rglob("*.yaml"))]


def _case(path: Path) -> Case:
    # The file's own keys are YAML that every reader reads alike; the recipes in it are texts.
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Case(name=path.relative_to(HERE).with_suffix("").as_posix(), **held)
