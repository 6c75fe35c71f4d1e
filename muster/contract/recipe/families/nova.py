"""Recipes of Amazon Nova: the weights stay with AWS, so the job names the model, or its package."""

from __future__ import annotations

import re

from pydantic import JsonValue

from muster.contract.recipe.families.channels import channel_named
from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.instances import check_count, check_types
from muster.contract.recipe.families.own_image import fill_mlflow, fill_own_image, on_cluster
from muster.contract.recipe.families.values import as_text, mapping_at, text_at, value_at

_PACKAGE = re.compile(r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]+:[0-9]{12}:model-package/.+")
_CONVERSATIONS = frozenset({"SFT", "DPO"})
"""Techniques whose data are conversations, for which S3DataType is Converse."""


def fill_nova(draft: Draft) -> None:
    """The fields of a job that trains or evaluates a Nova model."""
    fill_own_image(draft)
    if on_cluster(draft):
        allowed = "on a cluster Nova needs restricted instance groups, which Muster cannot use"
        draft.state("backend", "hyperpod is set with a recipe of Nova", "leave it out", allowed)
    _fill_model(draft)
    _fill_distillation(draft)
    _fill_functions(draft)
    _fill_conversations(draft)
    fill_mlflow(draft)
    check_types(draft)
    check_count(draft, "run", "replicas")


def _fill_model(draft: Draft) -> None:
    """The model that training starts from, and the group that gets the new one."""
    run = mapping_at(draft.recipe, "run")
    model = text_at(run, "model_name_or_path")
    package: dict[str, JsonValue] = {}
    if _PACKAGE.fullmatch(model):
        package["source_model_package_arn"] = model
    elif model.startswith("s3://"):
        draft.fill_part("hyper_parameters", {"base_model_location": model})
    elif model:
        draft.fill_part("hyper_parameters", {"base_model": model})
    if group := text_at(run, "model_package_group"):
        package["model_package_group_arn"] = group
    draft.fill_part("model_package_config", package)
    if text_at(draft.document, "model", "s3"):
        # The weights stay where they are: the service reads them itself.
        draft.drop_channel("model")


def _fill_distillation(draft: Draft) -> None:
    """What a distillation needs beside its recipe: the role and the key with which the service reads and writes."""
    training = mapping_at(draft.recipe, "training_config")
    data = training.get("distillation_data")
    if not data:
        return
    values: dict[str, JsonValue] = {"distillation_data": as_text(data)}
    role = text_at(draft.document, "role_arn")
    if role.startswith("arn:"):
        values["role_arn"] = role
    else:
        found = f"{role!r}, a name" if role else "missing"
        draft.state("role_arn", found, "write the ARN of the role", "a distillation passes it on to the service")
    if key := training.get("kms_key"):
        values["kms_key"] = as_text(key)
    else:
        remedy = "write a key in recipe.overrides: {training_config: {kms_key: …}}"
        draft.state("recipe.training_config.kms_key", "missing", remedy, "a distillation encrypts its data with it")
    draft.fill_part("hyper_parameters", values)


def _fill_functions(draft: Draft) -> None:
    """The Lambda functions that score: of an evaluation, and of reinforcement learning."""
    values: dict[str, JsonValue] = {}
    scores = text_at(draft.recipe, "processor", "lambda_arn")
    if value_at(draft.recipe, "evaluation") and scores:
        values["eval_lambda_arn"] = scores
    if reward := text_at(draft.recipe, "run", "reward_lambda_arn"):
        values["reward_lambda_arn"] = reward
    draft.fill_part("hyper_parameters", values)


def _fill_conversations(draft: Draft) -> None:
    """The data type of channels that leave it out."""
    hub = draft.request.hub
    if hub is None or hub.technique.upper() not in _CONVERSATIONS:
        return
    for name in ("train", "validation"):
        source = value_at(channel_named(draft.document, name), "data_source", "s3_data_source")
        if isinstance(source, dict) and source.get("s3_data_type") is None:
            draft.replace_source(name, {**source, "s3_data_type": "Converse"})
