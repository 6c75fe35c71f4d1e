"""Recipes whose image has the program that reads them: what all of these get."""

from __future__ import annotations

from pydantic import JsonValue

from muster.contract.hyperpod.backend import Backend
from muster.contract.recipe.families.channels import channel_named
from muster.contract.recipe.families.draft import RECIPE_MOUNT, Draft
from muster.contract.recipe.families.values import leaf_names, mapping_at, text_at
from muster.contract.recipe.recipe_reference import RECIPE_FILE

# How the tags of AWS's images begin: of training jobs, of clusters, and of reinforcement learning on clusters.
_JOBS, _CLUSTERS = "SM-TJ-", "SM-HP-"
_REINFORCED, _TRAINING = "SM-HP-RFT-", "SM-HP-RFT-TRAIN-"
LOCAL_PATH = "sagemaker_recipe_local_path"
"""The hyperparameter with which the image finds its recipe."""


def on_cluster(draft: Draft) -> bool:
    """Whether the ranks without an override run on a HyperPod cluster."""
    return draft.document.get("backend") == Backend.HYPERPOD.value


def cluster_image(image: str) -> str:
    """The image for clusters that AWS publishes beside one for training jobs; one of another name stays."""
    repository, colon, tag = image.rpartition(":")
    named = tag.replace(_JOBS, _CLUSTERS, 1)
    if named.startswith(_REINFORCED) and not named.startswith(_TRAINING):
        named = _TRAINING + named.removeprefix(_REINFORCED)
    return f"{repository}{colon}{named}"


def fill_own_image(draft: Draft) -> None:
    """The image, and where it finds the recipe."""
    if draft.sources.image is not None and draft.document.get("algorithm_name") is None:
        draft.fill("image", cluster_image(draft.sources.image) if on_cluster(draft) else draft.sources.image)
    if draft.document.get("image") is None and draft.document.get("algorithm_name") is None:
        remedy = "set image: the image of the recipe's model"
        draft.state("image", "missing, and the recipe names none", remedy, "the program of this recipe is in its image")
    draft.fill_part("hyper_parameters", {LOCAL_PATH: f"{RECIPE_MOUNT}/{RECIPE_FILE}"})


def fill_weights(draft: Draft) -> None:
    """The channel of the base model's weights, where the hub has them and the recipe does not name others."""
    if draft.openings.need_weights and channel_named(draft.document, "model") is None:
        source: dict[str, JsonValue] = {"s3_data_source": {"s3_data_type": "S3Prefix", "s3_uri": draft.sources.weights}}
        draft.add_channel({"channel_name": "model", "data_source": source, "input_mode": "File"})


def fill_mlflow(draft: Draft) -> None:
    """The names of the experiment and the run, which the containers require with a tracking server."""
    if text_at(draft.document, "mlflow_config", "mlflow_resource_arn"):
        name = draft.sources.name
        draft.fill_part("mlflow_config", {"mlflow_experiment_name": name, "mlflow_run_name": name})


def refuse_recipe_values(draft: Draft, *sent: str) -> None:
    """Refuse hyperparameters that are the recipe's: the program reads those from the recipe alone, but for `sent`."""
    known = {*draft.resolved.named, *leaf_names(draft.recipe)} - set(sent)
    for name in mapping_at(draft.document, "hyper_parameters"):
        if name in known:
            remedy = f"write it in recipe.overrides: {{{name}: …}}"
            draft.state(f"hyper_parameters.{name}", "the program reads this from the recipe alone", remedy)
