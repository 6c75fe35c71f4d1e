"""The CreateTrainingJob request of an attempt in a place, and what its job reads there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic import JsonValue

from muster.contract.aws.stock_images import EcrImage, is_stock_account, registry, stock_registry
from muster.contract.layout import s3_uri
from muster.contract.run.attempt import Attempt, shortages
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.run.replica_variables import ENV_HOME_REGION, ENV_NEAR, ENV_PLACE, ENV_REGION
from muster.contract.run.run_document import RunDocument
from muster.contract.run.where import Where
from muster.contract.spec.recipe_reference import recipe_folder
from muster.contract.spec.spec import Spec
from muster.options.places.contract.outposts import Outpost


def placed_request(plan: Plan, rank: int, attempts: Sequence[Attempt], at: Outpost | None) -> dict[str, JsonValue]:
    """The request for the last of `attempts`, in `at`, or at home."""
    current = attempts[-1]
    where = current.where or Where()
    # The job's tags name the plan that is stored: its digest stays.
    spec = _on_rung(plan.spec, rank, where, current.instance_type)
    placed = plan.model_copy(update={"spec": spec})
    if at is not None:
        placed = _in_outpost(placed, at)
    request = training_job_request(placed, rank, current.attempt, shortages(attempts))
    environment = {**cast("dict[str, JsonValue]", request["Environment"]), ENV_PLACE: where.place}
    if at is not None:
        environment |= {
            ENV_REGION: at.region,
            ENV_NEAR: s3_uri(at.bucket, plan.shared_layout.rendezvous),
            ENV_HOME_REGION: plan.region,
        }
    return {**request, "Environment": environment}


def delivered(plan: Plan, rank: int) -> tuple[dict[str, bytes], list[str], list[str]]:
    """What a job finds in the bucket of its place: documents by key, keys of objects at home, prefixes of others."""
    home = s3_uri(plan.place.bucket, "")
    uris = [plan.spec.source_dir, plan.place.package_uri] if plan.spec.source_dir is not None else []
    keys = [uri.removeprefix(home) for uri in uris if uri is not None and uri.startswith(home)]
    recipe = plan.spec.recipe
    folder = None if recipe is None else recipe_folder(recipe.of_rank(rank))
    documents = {key: document.to_json() for key, document in RunDocument.every(plan).items()}
    return documents, keys, [] if folder is None else [folder]


def regional_image(image: str, region: str) -> str:
    """The same image in a registry of another region: SageMaker pulls none from elsewhere."""
    found = EcrImage.parse(image)
    if found is None or found.region == region:
        return image
    host = stock_registry(region) if is_stock_account(found.account) else registry(found.account, region)
    return f"{host}/{found.repository}{found.version}"


def _on_rung(spec: Spec, rank: int, where: Where, instance_type: str | None) -> Spec:
    """The spec as the rank's rung has it; without `places`, which say no more than that."""
    if where.rung is None:
        return spec.model_copy(update={"places": None})
    update: dict[str, object] = {
        "places": None,
        "spot": where.spot,
        "training_plan_arn": where.training_plan,
        "instance_type": instance_type or spec.of_rank(rank).instance_type,
        "max_wait_seconds": spec.max_wait_seconds if where.spot else None,
    }
    return spec.model_copy(update=update)


def _in_outpost(plan: Plan, at: Outpost) -> Plan:
    home, here = s3_uri(plan.place.bucket, ""), s3_uri(at.bucket, "")

    def moved(uri: str | None) -> str | None:
        return None if uri is None else here + uri.removeprefix(home) if uri.startswith(home) else uri

    spec = plan.spec
    update = {
        "source_dir": moved(spec.source_dir),
        "image": None if spec.image is None else regional_image(spec.image, at.region),
    }
    place = Place(
        bucket=at.bucket,
        role_arn=at.replica_role_arn,
        job_prefix=plan.place.job_prefix,
        package_uri=moved(plan.place.package_uri),
    )
    return plan.model_copy(update={"spec": spec.model_copy(update=update), "place": place})
