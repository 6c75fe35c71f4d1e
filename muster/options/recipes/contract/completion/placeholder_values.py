"""What a spec says to its recipe: the values of the recipe's placeholders that follow from the spec's other fields."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from muster.contract.spec.recipe_reference import Family
from muster.contract.training.model_source import is_object
from muster.options.recipes.contract.document_values import mapping_at, text_at
from muster.options.recipes.contract.resolution import ReadRecipe

_DATA = "/opt/ml/input/data"  # SageMaker mounts each channel in a folder of its name below this one
_CHANNELS = {"data_path": "train", "validation_data_path": "validation"}
_COUNTS = ("replicas", "instance_count")
"""Placeholders of the number of instances of a job. What Muster calls a replica is a job."""
_WEIGHTS = "model_name_or_path"


def needs_weights(recipe: ReadRecipe) -> bool:
    """Whether the hub has weights that the recipe does not name yet."""
    if recipe.sources.weights is None or _WEIGHTS not in recipe.placeholders:
        return False
    default = recipe.parameters[_WEIGHTS].default if _WEIGHTS in recipe.parameters else None
    return not (recipe.sources.inputs.get(_WEIGHTS) or default)


def channel_named(document: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue] | None:
    """The spec's channel of this name, whatever is wrong with it."""
    found = document.get("input_data_config")
    channels = (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else ()
    return next((one for one in channels if one.get("channel_name") == name), None)


def _mount(document: Mapping[str, JsonValue], name: str) -> str | None:
    """The path of a channel's data in the container: of one object its file, else the channel's folder.

    A URI that ends with a slash is a folder, whatever dots it has. Without one, the URI of an object and the prefix of
    a folder look alike: a last part with an extension that begins with a letter is an object.
    """
    channel = channel_named(document, name)
    if channel is None:
        return None
    uri = text_at(channel, "data_source", "s3_data_source", "s3_uri")
    return f"{_DATA}/{name}/{uri.rpartition('/')[2]}" if is_object(uri) else f"{_DATA}/{name}"


def placeholder_values(
    document: Mapping[str, JsonValue], recipe: ReadRecipe, family: Family | None
) -> dict[str, JsonValue]:
    """Values of the recipe's placeholders, by name. What the user gives in `inputs` comes before them."""
    found: dict[str, JsonValue] = {name: _mount(document, channel) for name, channel in _CHANNELS.items()}
    config = mapping_at(document, "mlflow_config")
    if arn := text_at(config, "mlflow_resource_arn"):
        # The containers refuse a tracking server without names.
        name = recipe.sources.name
        found["mlflow_tracking_uri"] = arn
        found["mlflow_experiment_name"] = text_at(config, "mlflow_experiment_name") or name
        found["mlflow_run_name"] = text_at(config, "mlflow_run_name") or name
    found |= dict.fromkeys(_COUNTS, document.get("instance_count"))
    # The weights of Nova stay with AWS, and so does what its training gives.
    if family != "nova":
        found["output_path"] = "/opt/ml/model"
        found[_WEIGHTS] = _mount(document, "model") or (f"{_DATA}/model" if needs_weights(recipe) else None)
    return {name: value for name, value in found.items() if value is not None and name in recipe.placeholders}


def model_place(document: Mapping[str, JsonValue], *, nova: bool) -> str | None:
    """Where the program finds the model that the spec names under `model`; None where it names none.

    Nova's programs take a URI or a package's ARN, all others what is in the channel.
    """
    source = mapping_at(document, "model")
    if nova:
        return text_at(source, "package") or text_at(source, "s3") or None
    return _mount(document, "model") if text_at(source, "s3") else None
