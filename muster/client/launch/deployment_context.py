"""What a dry run learns of a deployed stack: its place, its defaults, and the prices of its region."""

from __future__ import annotations

from muster.client.aws.cloud import Cloud
from muster.client.aws.price_list import listed_prices
from muster.client.errors import ClientError
from muster.client.launch.dry_run import Surroundings
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.plan import Place
from muster.contract.spec.spec import Spec
from muster.contract.spec.stack_defaults import StackDefaults


def surroundings(cloud: Cloud, spec: Spec) -> Surroundings:
    """The stack as a launch of `spec` would find it. Without the API the shipped prices count, and that is said.

    Raises:
        ClientError: the stack cannot be found.
    """
    stack = cloud.stack
    place = Place(
        bucket=stack.bucket, role_arn=stack.role_arn, job_prefix=stack.job_prefix, package_uri=stack.package_uri or None
    )
    defaults = StackDefaults.from_json(stack.defaults, f"the output ReplicaDefaults of {stack.name}")
    complete = defaults.complete(spec)
    types = {name for rank in range(spec.replicas) for name in complete.of_rank(rank).instance_types}
    try:
        prices = listed_prices(cloud.session, stack.region, types)
    except ClientError as error:
        remark = f"the Price List API could not be asked ({error}); the shipped price table counts"
        return Surroundings(place, defaults, SHIPPED_PRICES, (remark,))
    return Surroundings(place, defaults, prices)
