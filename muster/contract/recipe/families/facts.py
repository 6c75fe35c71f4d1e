"""What a spec says to its recipe: the values of the recipe's placeholders that follow from the spec's other fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

from muster.contract.recipe.families.channels import MODEL_MOUNT, channel_named, mount_of
from muster.contract.recipe.families.values import mapping_at, text_at, value_at
from muster.contract.recipe.recipe_reference import Family
from muster.contract.recipe.recipe_sources import RecipeSources

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z0-9_.\-]+)\s*\}\}")
_CHANNELS = {"data_path": "train", "validation_data_path": "validation"}
_COUNTS = ("replicas", "instance_count")
"""Placeholders of the number of instances of a job. What Muster calls a replica is a job."""


def facts(document: Mapping[str, JsonValue], sources: RecipeSources, family: Family | None) -> dict[str, JsonValue]:
    """Values of placeholders that the recipe has, by name. What the user gives in `inputs` comes before them."""
    found: dict[str, JsonValue] = {}
    for name, channel_name in _CHANNELS.items():
        if (channel := channel_named(document, channel_name)) is not None:
            found[name] = mount_of(channel)
    found |= _mlflow(document, sources)
    if (count := document.get("instance_count")) is not None:
        found |= dict.fromkeys(_COUNTS, count)
    # The weights of other models stay with AWS, and so does what their training gives.
    if family != "nova":
        found["output_path"] = "/opt/ml/model"
        if (mount := model_mount(document, sources)) is not None:
            found["model_name_or_path"] = mount
    known = placeholders(sources)
    return {name: value for name, value in found.items() if name in known}


def placeholders(sources: RecipeSources) -> frozenset[str]:
    """The names of the recipe's placeholders."""
    base = sources.base or sources.recipe
    return frozenset(_PLACEHOLDER.findall(base.text)) if base is not None else frozenset()


def model_mount(document: Mapping[str, JsonValue], sources: RecipeSources) -> str | None:
    """Where the container finds the weights; None where no channel brings them."""
    channel = channel_named(document, "model")
    if channel is not None:
        return mount_of(channel)
    return MODEL_MOUNT if needs_weights(sources) else None


def needs_weights(sources: RecipeSources) -> bool:
    """Whether the hub has weights that the recipe's placeholder does not name yet."""
    if sources.weights is None or "model_name_or_path" not in placeholders(sources):
        return False
    given = sources.inputs.get("model_name_or_path") or value_at(
        override_spec(sources), "model_name_or_path", "default"
    )
    return not given


def override_spec(sources: RecipeSources) -> Mapping[str, JsonValue]:
    """The override specification; an empty one where there is none. The resolution refuses a faulty one."""
    if sources.override_spec is None:
        return {}
    try:
        return mapping_at(json.loads(sources.override_spec.text))
    except (ValueError, RecursionError):
        return {}


def _mlflow(document: Mapping[str, JsonValue], sources: RecipeSources) -> dict[str, JsonValue]:
    """The recipe's MLflow values: the containers refuse a tracking server without names."""
    config = mapping_at(document, "mlflow_config")
    arn = text_at(config, "mlflow_resource_arn")
    if not arn:
        return {}
    return {
        "mlflow_tracking_uri": arn,
        "mlflow_experiment_name": text_at(config, "mlflow_experiment_name") or sources.name,
        "mlflow_run_name": text_at(config, "mlflow_run_name") or sources.name,
    }
