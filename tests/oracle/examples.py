"""What differs from the SageMaker SDK: one example for each row of the table in docs/recipes-sdk.md.

Each is run on both sides. What the table shows is what came out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tests.oracle.cases import Case

Kind = Literal["resolved", "delivered", "request"]
"""The resolved recipe; the recipe in the job's channel; the job's request."""


@dataclass(frozen=True)
class Refused:
    """A refusal: of the SDK by words of its message, of Muster by the fields that it names."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)


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
    kind: Kind = "resolved"


def at(document: Any, path: str) -> object:
    """The value at a path with slashes. None where there is none."""
    for part in path.split("/"):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def shown(value: object) -> str:
    """A value as the table shows it."""
    return "refused" if isinstance(value, Refused) else f"`{json.dumps(value)}`"


def _spec(**entries: dict[str, object]) -> str:
    return json.dumps(entries)


def _case(name: str, **parts: Any) -> Case:
    return Case(name=f"examples/{name}", about="", **parts)


_RATE = _spec(learning_rate={"type": "float", "default": 0.1, "min": 0, "max": 1})
_STEPS = _spec(steps={"type": "integer", "default": 5})
_JOB = {
    "role": "arn:aws:iam::123456789012:role/training",
    "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/llmft:1",
    "compute": {"instance_type": "ml.p5.48xlarge", "instance_count": 1},
    "model": "acme-quay-1b",
    "technique": "SFT",
}
_RUN = "run: {model_type: llm_finetuning_aws, name: own}\n"
_TEMPLATE = (
    f"{_RUN}training_config:\n  epochs: '{{{{max_epochs}}}}'\n  note: '{{{{note}}}}'\n  top_p: 0.9\n"
    "  lr: '{{learning_rate}}'\n  data: '{{data_path}}'\n"
)
_TEMPLATE_SPEC = _spec(
    max_epochs={"type": "integer", "default": 1, "min": 1, "max": 9},
    note={"type": "string", "default": "plain"},
    learning_rate={"type": "float", "default": 0.1, "min": 0, "max": 1},
    data_path={"type": "string", "default": ""},
)


def _trained(name: str, **parts: Any) -> Case:
    """A case whose template a trainer of the SDK runs."""
    job = {**_JOB, **parts.pop("job", {})}
    return _case(name, **{"base": _TEMPLATE, "spec": _TEMPLATE_SPEC, **parts}, job=job)


def _job(name: str, recipe: str, **parts: Any) -> Case:
    """A case whose recipe `ModelTrainer.from_recipe` runs."""
    job = {key: item for key, item in _JOB.items() if key not in ("model", "technique")}
    return _case(name, recipe=recipe, job={**job, **parts.pop("job", {})}, **parts)


EXAMPLES = (
    # Where a value goes.
    Example(
        "A path is a path",
        _case(
            "path",
            base="training_config:\n  optim: {lr: 0.1}\n  critic: {lr: 0.2}\n  steps: '{{steps}}'\n",
            spec=_STEPS,
            overrides={"training_config": {"optim": {"lr": 0.5}}},
        ),
        "training_config/optim/lr",
        0.1,
        0.5,
    ),
    Example(
        "A name that occurs twice",
        _case(
            "twice",
            base="actor: {lr: 0.1}\ncritic: {lr: 0.2}\nsteps: '{{steps}}'\n",
            spec=_STEPS,
            overrides={"lr": 0.5},
        ),
        "critic/lr",
        0.5,
        Refused("recipe.lr (overrides)"),
    ),
    Example(
        "A name with a dot",
        _case("dot", base="layers: {a.b: 1}\nsteps: '{{steps}}'\n", spec=_STEPS, overrides={"layers": {"a.b": 2}}),
        "layers/a.b",
        1,
        2,
    ),
    Example(
        "An unknown name",
        _case("unknown", base="training_config: {max_steps: 10}\n", overrides={"training_config": {"max_step": 20}}),
        "training_config/max_steps",
        10,
        Refused("recipe.training_config.max_step (overrides)"),
    ),
    Example(
        "A name without its path, in a recipe",
        _case("flat", base="training_config: {max_steps: 10}\n", recipe="max_steps: 20\n"),
        "training_config/max_steps",
        10,
        Refused("recipe.max_steps (file)"),
    ),
    # What a placeholder becomes.
    Example(
        "A placeholder within a text",
        _case(
            "within", base="run: {dir: 'runs/{{name}}/out'}\n", spec=_spec(name={"type": "string", "default": "own"})
        ),
        "run/dir",
        None,
        "runs/own/out",
    ),
    Example(
        "A placeholder without quotes",
        _case(
            "unquoted",
            base="run: {model: own}\ntraining_config:\n  steps: {{steps}}\n",
            spec=_STEPS,
            overrides={"steps": 7},
        ),
        "run/model",
        None,
        "own",
    ),
    Example(
        "A value is never a text of YAML",
        _trained("injected", values={"note": "a\n  extra: 1"}),
        "training_config/extra",
        1,
        None,
        "delivered",
    ),
    Example(
        "A value is never a template",
        _trained("again", overrides={"training_config": {"note": "{{learning_rate}}"}}),
        "training_config/note",
        0.1,
        "{{learning_rate}}",
        "delivered",
    ),
    Example(
        "A placeholder with spaces",
        _trained("spaces", base=_TEMPLATE.replace("{{note}}", "{{ note }}")),
        "training_config/note",
        Refused("unresolved placeholders"),
        "plain",
        "delivered",
    ),
    Example(
        "Numbers with an exponent, in a template",
        _case("exponent", base="training_config: {learning_rate: 1e-5}\n", spec=_RATE),
        "training_config/learning_rate",
        Refused("expected float, got str"),
        1e-05,
    ),
    # What is checked.
    Example(
        "true is no number",
        _case(
            "true",
            base="training_config: {steps: '{{steps}}'}\n",
            spec=_spec(steps={"type": "integer", "default": 5}),
            overrides={"training_config": {"steps": True}},
        ),
        "training_config/steps",
        True,
        Refused("recipe.training_config.steps (overrides)"),
    ),
    Example(
        "NaN is no number",
        _case(
            "nan",
            base="training_config: {learning_rate: '{{learning_rate}}'}\n",
            spec=_RATE,
            recipe="training_config: {learning_rate: .nan}\n",
        ),
        "training_config/learning_rate",
        float("nan"),
        Refused("recipe.training_config.learning_rate (file)"),
    ),
    Example(
        "A default outside of its own limits",
        _case(
            "own-limits",
            base="training_config: {steps: '{{steps}}', other: 1}\n",
            spec=_spec(steps={"type": "integer", "default": 10, "min": 1000}),
            overrides={"training_config": {"other": 2}},
        ),
        "training_config/steps",
        Refused("10 is below minimum 1000"),
        10,
    ),
    Example(
        "Types of lists and numbers",
        _case(
            "type",
            base="training_config: {ranks: '{{ranks}}'}\n",
            spec=_spec(ranks={"type": "list", "default": [0]}),
            overrides={"training_config": {"ranks": 5}},
        ),
        "training_config/ranks",
        5,
        Refused("recipe.training_config.ranks (overrides)"),
    ),
    Example(
        "A list of allowed values",
        _case(
            "allowed",
            base="training_config: {metrics: '{{metrics}}'}\n",
            spec=_spec(metrics={"default": "all", "enum": ["all", "f1", "bleu"]}),
            overrides={"training_config": {"metrics": ["f1", "bleu"]}},
        ),
        "training_config/metrics",
        Refused("is not in allowed values"),
        ["f1", "bleu"],
    ),
    Example(
        "All problems at once",
        _case(
            "all",
            base="training_config: {lr: '{{lr}}', steps: '{{steps}}'}\n",
            spec=_spec(
                lr={"type": "float", "default": 0.1, "max": 1}, steps={"type": "integer", "default": 5, "max": 9}
            ),
            overrides={"training_config": {"lr": 7.5, "steps": 99}},
        ),
        "",
        Refused("7.5 is above maximum"),
        Refused("recipe.training_config.lr (overrides)", "recipe.training_config.steps (overrides)"),
    ),
    Example(
        "The source of a value",
        _case(
            "source",
            base="training_config: {optim: {lr: '{{learning_rate}}'}}\n",
            spec=_RATE,
            overrides={"learning_rate": 7.5},
        ),
        "",
        Refused("Source: base defaults"),
        Refused("recipe.training_config.optim.lr (overrides)"),
    ),
    Example(
        "Limits that depend on the recipe",
        _case(
            "conditional",
            base="run: {replicas_of_data: '{{copies}}'}\n",
            spec=_spec(
                copies={
                    "type": "integer",
                    "default": 2,
                    "conditional_constraints": {"enum": {"Name": {"examples-conditional": [1, 2]}}},
                }
            ),
            overrides={"run": {"replicas_of_data": 64}},
        ),
        "run/replicas_of_data",
        64,
        Refused("recipe.run.replicas_of_data (overrides)"),
    ),
    # What a reference reaches.
    Example(
        "The environment",
        _case("environment", recipe="run: {region: '${oc.env:AWS_DEFAULT_REGION}'}\n"),
        "run/region",
        "us-west-2",
        Refused("recipe.run.region (file)"),
    ),
    Example(
        "Text that would be read as values",
        _case("decode", recipe="text: '8'\nnumber: ${oc.decode:${text}}\n"),
        "number",
        8,
        Refused("recipe.number (file)"),
    ),
    Example(
        "References below recipes",
        _case("below", base="run: {name: own}\ndir: ${recipes.run.name}\n", overrides={"run": {"name": "other"}}),
        "dir",
        Refused("Interpolation key 'recipes.run.name' not found"),
        "other",
    ),
    Example(
        "Defaults below recipes",
        _case("defaults", recipe="run: {name: own, n: 8}\na: '${oc.select:recipes.run.n,1}'\nb: ${recipes.run.name}\n"),
        "a",
        1,
        8,
    ),
    Example(
        "Arithmetic with texts",
        _case("arithmetic", recipe="a: '8'\nb: ${multiply:${a},2}\n"),
        "b",
        "88",
        Refused("recipe.b (file)"),
    ),
    Example(
        "A mapping within a text",
        _case("mapping", recipe="a: {b: 1}\nc: x-${a}\n"),
        "c",
        "x-{'b': 1}",
        Refused("recipe.c (file)"),
    ),
    Example(
        "A reference that is replaced",
        _case(
            "replaced",
            recipe="run: {name: own, results_dir: '${base_results_dir}/${.name}'}\n",
            overrides={"run": {"results_dir": "/opt/ml/model"}},
        ),
        "run/results_dir",
        Refused("Interpolation key 'base_results_dir' not found"),
        "/opt/ml/model",
    ),
    Example(
        "A list instead of a mapping",
        _case("list", recipe="a: {b: 1}\n", overrides={"a": [1, 2]}),
        "a",
        Refused("Cannot merge DictConfig with ListConfig"),
        [1, 2],
    ),
    # What YAML means.
    Example("Leading zeros", _case("zeros", recipe="mode: 0777\n"), "mode", 511, Refused("recipe (file: recipe.yaml)")),
    Example("Base 60", _case("sixty", recipe="ratio: 16:9\n"), "ratio", 969, Refused("recipe (file: recipe.yaml)")),
    Example(
        "Merge keys",
        _case("merge", recipe="a: &a {x: 1}\nb: {<<: *a}\n"),
        "b/x",
        1,
        Refused("recipe (file: recipe.yaml)"),
    ),
    Example(
        "Keys that are true or false",
        _case("keys", recipe="engine: {on: 1}\n"),
        "engine/on",
        None,
        Refused("recipe (file: recipe.yaml)"),
    ),
    Example(
        "Numbers as keys, twice",
        _case("keys-twice", recipe="scale: {1: 2}\n1: a\n'1': b\n"),
        "1",
        "b",
        Refused("recipe (file: recipe.yaml)"),
    ),
    Example("Tags", _case("tags", recipe="steps: !!int '12'\n"), "steps", 12, Refused("recipe (file: recipe.yaml)")),
    # What the job gets.
    Example(
        "A value that is no placeholder",
        _trained("literal", overrides={"training_config": {"top_p": 0.5}}),
        "training_config/top_p",
        0.9,
        0.5,
        "delivered",
    ),
    Example(
        "A placeholder of another name",
        _trained("renamed", recipe="training_config: {epochs: 4}\n"),
        "training_config/epochs",
        1,
        4,
        "delivered",
    ),
    Example(
        "The last of a name",
        _trained(
            "last",
            base="run: {model_type: llm_finetuning_aws, name: '{{name}}'}\ntraining_config:\n"
            "  epochs: '{{max_epochs}}'\n  profiler: {name: torch}\n",
            spec=_spec(name={"type": "string", "default": "own"}, max_epochs={"type": "integer", "default": 1}),
            values={"max_epochs": 2},
        ),
        "run/name",
        "torch",
        "own",
        "delivered",
    ),
    Example(
        "What the hub decides",
        _trained("decided", overrides={"run": {"model_type": "verl"}}),
        "run/model_type",
        "llm_finetuning_aws",
        Refused("recipe.run.model_type (overrides)"),
        "delivered",
    ),
    Example(
        "A prefix with a dot",
        _trained("mount", job={"channels": {"train": "s3://own-data/v1.2"}}),
        "training_config/data",
        "/opt/ml/input/data/train/v1.2",
        "/opt/ml/input/data/train",
        "delivered",
    ),
    Example(
        "Characters of a value",
        _trained("characters", values={"note": "a=b"}),
        "training_config/note",
        Refused("invalid"),
        "a=b",
        "delivered",
    ),
    Example(
        "Hyperparameters beside a recipe",
        _job("beside", f"{_RUN}training_config: {{lr: 0.1}}\n", job={"hyperparameters": {"lr": "0.5"}}),
        "HyperParameters/lr",
        None,
        Refused("hyper_parameters.lr"),
        "request",
    ),
    Example(
        "The recipe's instance types",
        _job("types", f"instance_types: [ml.p4d.24xlarge]\n{_RUN}training_config: {{lr: 0.1}}\n"),
        "ResourceConfig/InstanceType",
        "ml.p5.48xlarge",
        Refused("instance_type"),
        "request",
    ),
    Example(
        "The number of instances",
        _job("count", f"{_RUN}trainer: {{num_nodes: 4}}\ntraining_config: {{lr: 0.1}}\n"),
        "trainer/num_nodes",
        4,
        1,
        "delivered",
    ),
    Example(
        "Fields that a trainer forgets",
        _trained(
            "forgotten",
            job={
                "networking": {
                    "security_group_ids": ["sg-0123456789abcdef0"],
                    "subnets": ["subnet-0123456789abcdef0"],
                    "enable_inter_container_traffic_encryption": True,
                }
            },
        ),
        "EnableInterContainerTrafficEncryption",
        None,
        True,
        "request",
    ),
)
