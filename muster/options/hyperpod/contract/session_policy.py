"""The rights of a run's pods: a session policy within the stack's pod role. Pure.

All runs of a stack share the role. The session policy of a run's pod identity association keeps them apart, as the
session tags of training jobs do (`muster.contract.run.session_tags`): it names the run's own prefixes of the bucket.
Pods have the rights that both give, and a policy is short: so it says where, and the role says what may be done there.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.contract.aws.partitions import Locality
from muster.contract.document import canonical_json
from muster.contract.errors import SpecError, StatedProblem
from muster.contract.layout import s3_uri
from muster.contract.run.notices import NOTICES
from muster.contract.run.plan import Plan
from muster.contract.run.session_tags import MODEL_FOLDERS, model_tag
from muster.contract.spec.recipe_reference import recipe_folder

POLICY_CHARACTERS_MAX = 2_048
"""STS: of an inline session policy. CreatePodIdentityAssociation takes no longer `policy`."""
_PATTERN_CHARACTERS = frozenset("*?$")
# A run of a sweep may have a recipe for each rank: who does not know a digest finds nothing with this.
_ANY_RECIPE = f"{recipe_folder('?' * 64)}*"


def session_policy(plan: Plan) -> str:
    """The session policy of the run's pods, as compact JSON. It may be too long: the caller checks that.

    Raises:
        SpecError: a value of the spec would be a pattern or a variable in it.
    """
    bucket = f"arn:{Locality.of_arn(plan.execution_arn).partition}:s3:::{plan.place.bucket}"
    lineage, run = plan.shared_layout.run, plan.run
    listed = [f"rendezvous/{lineage}/*", f"checkpoints/{lineage}/*", f"output/{run}/*", *_inputs(plan)]
    keys = [*listed, f"runs/{run}/*", f"{NOTICES}{run}/*"]
    for key in keys:
        if key != _ANY_RECIPE and not _PATTERN_CHARACTERS.isdisjoint(key.removesuffix("*")):
            statement = f"{key} would be a pattern in the rights of the run's pods"
            raise SpecError([StatedProblem("source_dir", statement, "use names without * ? and $")])
    statements = [
        # What may be done with each of them is in the role.
        {"Effect": "Allow", "Action": "s3:*", "Resource": [f"{bucket}/{key}" for key in keys]},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": listed}},
        },
        # What the role has outside of the stack's bucket: data, keys, metrics.
        {"Effect": "Allow", "Action": "*", "NotResource": [bucket, f"{bucket}/*"]},
    ]
    return canonical_json({"Version": "2012-10-17", "Statement": statements}).decode()


def _inputs(plan: Plan) -> Iterator[str]:
    """What the run's pods read besides their document: code, package and recipe by digest, and another run's model."""
    own = s3_uri(plan.place.bucket, "")
    for uri in (plan.spec.source_dir, plan.place.package_uri):
        if uri is not None and uri.startswith(own):
            yield f"{uri.removeprefix(own)}*"
    recipe = plan.spec.recipe
    if recipe is not None:
        yield f"{recipe_folder(recipe.digest)}*" if recipe.ranks is None else _ANY_RECIPE
    model = plan.spec.model
    if model is not None and model.run is not None and model.s3 is not None and model.s3.startswith(own):
        # The folder of the model that the plan has found, and nothing beside it.
        folder = model_tag(model.s3)
        key = model.s3.removeprefix(own)
        above = next((above for above in MODEL_FOLDERS if key.startswith(above)), None)
        if folder is not None and above is not None:
            yield f"{above}{folder}/*"
