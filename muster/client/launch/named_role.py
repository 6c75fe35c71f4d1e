"""The ARN of a role that a spec names without one."""

from __future__ import annotations

from muster.client.aws.cloud import Cloud
from muster.client.aws.error_translation import translated
from muster.client.client_errors import DeniedError
from muster.contract.errors import Problem, SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.stack_defaults import StackDefaults


def with_role_arn(cloud: Cloud, spec: Spec) -> Spec:
    """The spec with the ARN of its role. A name is unique in an account, whatever the role's path is.

    The roles that the stack may pass are known from its outputs; only for another one IAM is asked.

    Raises:
        SpecError: there is no such role, or the caller may not look it up.
        ClientError: AWS cannot be reached or refuses.
    """
    name = spec.named_role
    if name is None:
        return spec
    stack = cloud.stack
    access = StackDefaults.from_json(stack.defaults, f"the output ReplicaDefaults of {stack.name}").access
    known = [stack.role_arn, *([] if access is None else access.roles)]
    arn = next((item for item in known if item.rpartition("/")[2] == name), None)
    return spec.model_copy(update={"role_arn": arn or _look_up(cloud, name)})


def _look_up(cloud: Cloud, name: str) -> str:
    try:
        with translated("NoSuchEntity"):
            return cloud.connection.iam.get_role(RoleName=name)["Role"]["Arn"]
    except DeniedError:
        allowed = "a name whose ARN you may look up (iam:GetRole)"
        raise SpecError([Problem("role_arn", repr(name), "write the role's ARN", allowed)]) from None
    remedy, allowed = "correct the name, or write the role's ARN", f"a role of the account {cloud.stack.account}"
    raise SpecError([Problem("role_arn", repr(name), remedy, allowed)])
