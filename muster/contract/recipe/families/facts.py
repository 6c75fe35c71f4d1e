"""What a spec says to its recipe: the values of the recipe's placeholders that follow from the spec's other fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from muster.contract.errors import RecipeError
from muster.contract.recipe.families.channels import MODEL_MOUNT, channel_named, mount_of
from muster.contract.recipe.families.values import mapping_at, text_at
from muster.contract.recipe.override_spec import Parameter
from muster.contract.recipe.recipe_reference import Family
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.resolution import parameters_of, placeholders_of

_CHANNELS = {"data_path": "train", "validation_data_path": "validation"}
_COUNTS = ("replicas", "instance_count")
"""Placeholders of the number of instances of a job. What Muster calls a replica is a job."""
_WEIGHTS = "model_name_or_path"


@dataclass(frozen=True)
class Openings:
    """What a recipe leaves open: its placeholders, and what its override specification says about them."""

    sources: RecipeSources
    placeholders: frozenset[str]
    parameters: Mapping[str, Parameter]

    @classmethod
    def of(cls, sources: RecipeSources) -> Openings:
        """Those of a recipe; of a faulty one, which the resolution refuses, none."""
        try:
            return cls(sources, frozenset(placeholders_of(sources)), parameters_of(sources))
        except RecipeError:
            return cls(sources, frozenset(), {})

    @property
    def need_weights(self) -> bool:
        """Whether the hub has weights that the recipe does not name yet."""
        if self.sources.weights is None or _WEIGHTS not in self.placeholders:
            return False
        default = self.parameters[_WEIGHTS].default if _WEIGHTS in self.parameters else None
        return not (self.sources.inputs.get(_WEIGHTS) or default)


def facts(document: Mapping[str, JsonValue], openings: Openings, family: Family | None) -> dict[str, JsonValue]:
    """Values of the recipe's placeholders, by name. What the user gives in `inputs` comes before them."""
    found: dict[str, JsonValue] = {}
    for name, channel_name in _CHANNELS.items():
        if (channel := channel_named(document, channel_name)) is not None:
            found[name] = mount_of(channel)
    found |= _mlflow(document, openings.sources.name)
    if (count := document.get("instance_count")) is not None:
        found |= dict.fromkeys(_COUNTS, count)
    # The weights of Nova stay with AWS, and so does what its training gives.
    if family != "nova":
        found["output_path"] = "/opt/ml/model"
        if (mount := _model_mount(document, openings)) is not None:
            found[_WEIGHTS] = mount
    return {name: value for name, value in found.items() if name in openings.placeholders}


def model_place(document: Mapping[str, JsonValue], *, nova: bool) -> str | None:
    """Where the program finds the model that the spec names under `model`; None where it names none.

    Nova's programs take a URI or a package's ARN, all others what is in the channel.
    """
    source = mapping_at(document, "model")
    if nova:
        return text_at(source, "package") or text_at(source, "s3") or None
    channel = channel_named(document, "model") if text_at(source, "s3") else None
    return None if channel is None else mount_of(channel)


def _model_mount(document: Mapping[str, JsonValue], openings: Openings) -> str | None:
    """Where the container finds the weights; None where no channel brings them."""
    channel = channel_named(document, "model")
    if channel is not None:
        return mount_of(channel)
    return MODEL_MOUNT if openings.need_weights else None


def _mlflow(document: Mapping[str, JsonValue], name: str) -> dict[str, JsonValue]:
    """The recipe's MLflow values: the containers refuse a tracking server without names."""
    config = mapping_at(document, "mlflow_config")
    arn = text_at(config, "mlflow_resource_arn")
    if not arn:
        return {}
    return {
        "mlflow_tracking_uri": arn,
        "mlflow_experiment_name": text_at(config, "mlflow_experiment_name") or name,
        "mlflow_run_name": text_at(config, "mlflow_run_name") or name,
    }
