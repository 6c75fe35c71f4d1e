"""What Muster makes of the same recipes: the resolved document, and the request of the spec's training job."""

from typing import Any

import yaml

from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.model_source import ModelSource, with_model
from muster.options.recipes.contract.expansion import expansion
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from tests.release.oracle.cases import Case
from tests.support.job_requests import requests


def sources(case: Case) -> RecipeSources:
    """The sources of a case, as gathering them gives them."""
    return RecipeSources(
        name=case.name.replace("/", "-"),
        base=_text("base.yaml", case.base),
        override_spec=_text("spec.json", case.spec),
        recipe=_text("recipe.yaml", case.recipe),
        overrides=case.overrides,
        values=case.values,
        weights=(case.job or {}).get("weights"),
        hub_model=(case.job or {}).get("model"),
    )


def resolved(case: Case) -> Any:
    """The resolved recipe, as a program reads its YAML."""
    return yaml.safe_load(resolve(sources(case)).to_yaml())


def document(case: Case) -> dict[str, Any]:
    """The spec of a case's job: what its user says beside the recipe."""
    job = case.job or {}
    compute, network, stopping = (job.get(part, {}) for part in ("compute", "networking", "stopping_condition"))
    vpc = {name: network[name] for name in ("security_group_ids", "subnets") if name in network}
    fields = {
        "replicas": 1,
        "recipe": {"hub": {name: job[name] for name in ("model", "technique")}} if "model" in job else "recipe.yaml",
        "image": job.get("image"),
        "role_arn": job.get("role"),
        "instance_type": compute.get("instance_type"),
        "instance_count": compute.get("instance_count"),
        "volume_gb": compute.get("volume_size_in_gb"),
        "keep_alive_period_in_seconds": compute.get("keep_alive_period_in_seconds"),
        "environment": job.get("environment"),
        "hyper_parameters": job.get("hyperparameters"),
        "tags": job.get("tags"),
        "max_runtime_seconds": stopping.get("max_runtime_in_seconds"),
        "output_data_config": job.get("output"),
        "checkpoint_config": job.get("checkpoints"),
        "model_package_config": job.get("package"),
        "model": {"s3": job["model_source"]} if "model_source" in job else None,
        "mlflow_config": {"mlflow_resource_arn": job["mlflow"]} if "mlflow" in job else None,
        "vpc_config": vpc or None,
        "enable_network_isolation": network.get("enable_network_isolation"),
        "enable_inter_container_traffic_encryption": network.get("enable_inter_container_traffic_encryption"),
        "input_data_config": [
            {"channel_name": name, "data_source": {"s3_data_source": {"s3_uri": uri}}}
            for name, uri in job.get("channels", {}).items()
        ],
        **job.get("program", {}),
    }
    found = {name: value for name, value in fields.items() if value is not None}
    # As the client does before it expands the spec: where the model is, is a channel or a package.
    return with_model(found, ModelSource(s3=job["model_source"])) if "model_source" in job else found


def request(case: Case) -> dict[str, Any]:
    """The CreateTrainingJob request of the expanded spec."""
    (found,) = requests(parse_spec(expansion(document(case), sources(case)).document))
    return found


def delivered(case: Case) -> Any:
    """The recipe that the container of a case's job finds in its channel, as a program reads it."""
    return yaml.safe_load(expansion(document(case), sources(case)).recipes[0].to_yaml())


def _text(place: str, text: str | None) -> SourceText | None:
    return None if text is None else SourceText(place=place, text=text)
