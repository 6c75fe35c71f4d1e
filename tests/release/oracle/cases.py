"""What both sides resolve: the recipes of `recipes/`, in the shape of public families, and what differs.

The examples of `examples.yaml` show what differs from the SageMaker SDK: each is run on both sides.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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


Kind = Literal["resolved", "delivered", "request"]
"""The resolved recipe; the recipe in the job's channel; the job's request."""
_JOB = {
    "role": "arn:aws:iam::123456789012:role/training",
    "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/llmft:1",
    "compute": {"instance_type": "ml.p5.48xlarge", "instance_count": 1},
}
_HUB = {"model": "acme-quay-1b", "technique": "SFT"}
_TEMPLATE = """run: {model_type: llm_finetuning_aws, name: own}
training_config:
  epochs: '{{max_epochs}}'
  note: '{{note}}'
  top_p: 0.9
  lr: '{{learning_rate}}'
  data: '{{data_path}}'
"""
_TEMPLATE_SPEC = {
    "max_epochs": {"type": "integer", "default": 1, "min": 1, "max": 9},
    "note": {"type": "string", "default": "plain"},
    "learning_rate": {"type": "float", "default": 0.1, "min": 0, "max": 1},
    "data_path": {"type": "string", "default": ""},
}


@dataclass(frozen=True)
class Refused:
    """A refusal: of the SDK by words of its message, of Muster by the fields that it names."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """One difference.

    Args:
        name: the row of the table.
        case: the sources, and the job.
        path: where to look in the result, with slashes.
        theirs: the SDK's value there, or its refusal.
        ours: Muster's.
        kind: which result.
    """

    name: str
    case: Case
    path: str
    theirs: object
    ours: object
    kind: Kind


def at(document: Any, path: str) -> object:
    """The value at a path with slashes. None where there is none."""
    for part in path.split("/"):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def shown(value: object) -> str:
    """A value as the table shows it."""
    return "refused" if isinstance(value, Refused) else f"`{json.dumps(value)}`"


def _example(
    name: str, at: str, theirs: object, ours: object, *, look: Kind = "resolved", spec: Any = None, **parts: Any
) -> Example:
    if "trained" in parts:
        parts["job"] = {**_JOB, **_HUB, **parts.pop("trained")}
        parts, spec = {"base": _TEMPLATE, **parts}, spec or _TEMPLATE_SPEC
    elif "run" in parts:
        parts["job"] = {**_JOB, **parts.pop("run")}
    slug = name.lower().replace(" ", "-")
    case = Case(name=f"examples/{slug}", about="", spec=json.dumps(spec) if spec else None, **parts)
    return Example(name, case, at, _side(theirs), _side(ours), look)


def _side(value: object) -> object:
    return Refused(tuple(value["refused"])) if isinstance(value, dict) and "refused" in value else value


EXAMPLES = tuple(
    _example(**one) for one in yaml.safe_load((HERE.with_name("examples.yaml")).read_text(encoding="utf-8"))
)
