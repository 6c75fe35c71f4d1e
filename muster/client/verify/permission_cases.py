"""What each role must be allowed and what replicas must be denied, as requests that IAM can simulate. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.client.verify.stack_template import Statement
from muster.contract.aws.session_tags import SESSION_TAGS
from muster.contract.layout import RunLayout
from muster.contract.run.source_delivery import package_key, source_key

SAMPLE = "verify"
"""Stands for every wildcard: a simulation takes no patterns."""
OTHER = "another"
"""A run that is not the replica's own."""
REPLICA = "Replica"
_TAGS = {f"aws:PrincipalTag/{tag}": (SAMPLE,) for tag in SESSION_TAGS}
_VARIABLE = re.compile(r"\$\{(aws:[^}]+)\}")


@dataclass(frozen=True)
class Case:
    """Requests of one role, all of which must be allowed, or none."""

    role: str
    role_arn: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    context: Mapping[str, tuple[str, ...]]
    """Condition keys with their values."""
    allowed: bool
    statement: Statement | None = None
    """The statement that should allow it."""


def needed(statements: Iterable[Statement]) -> Iterator[Case]:
    """What the deployed template allows: each statement as a request that it should match."""
    for statement in statements:
        resources = tuple(_example(arn) for arn in statement.resources)
        tags = {name: (SAMPLE,) for arn in statement.resources for name in _VARIABLE.findall(arn)}
        context = {**tags, **_context(statement.conditions)}
        yield Case(statement.role, statement.role_arn, statement.actions, resources, context, True, statement)


def replica_needs(role_arn: str, bucket_arn: str) -> Iterator[Case]:
    """What a container cannot do without, also with a role of the deployment's own."""
    run = RunLayout(SAMPLE)
    read, write = ("s3:GetObject",), ("s3:GetObject", "s3:PutObject")
    shared = (f"{run.rendezvous}x", f"{run.checkpoints(0)}x", f"{run.output}x")
    delivered = (run.document, source_key("0" * 64), package_key("0" * 64))
    requests = ((read, delivered), (write, shared), (("s3:DeleteObject",), shared[:2]))
    for actions, keys in requests:
        yield Case(REPLICA, role_arn, actions, tuple(f"{bucket_arn}/{key}" for key in keys), _TAGS, allowed=True)
    prefix = {**_TAGS, "s3:prefix": (run.rendezvous,)}
    yield Case(REPLICA, role_arn, ("s3:ListBucket",), (bucket_arn,), prefix, allowed=True)


def replica_denials(role_arn: str, bucket_arn: str, *, own_role: bool) -> Iterator[Case]:
    """What user code must not be able to do: the control plane's objects, other runs, other services.

    `own_role`: the role is the stack's, which keeps runs apart. A role that the deployment brings may do otherwise.
    """
    run, other = RunLayout(SAMPLE), RunLayout(OTHER)
    every = ("s3:DeleteObject", "s3:GetObject", "s3:PutObject")
    control = (run.plan, run.record(0), run.result, run.fence, run.page, run.queue_token, "queue/queue.json")
    written = (run.document, source_key("0" * 64), package_key("0" * 64), "inbox/x.yaml")

    def denied(actions: tuple[str, ...], resources: Iterable[str]) -> Case:
        return Case(REPLICA, role_arn, actions, tuple(resources), _TAGS, allowed=False)

    yield denied(every, (f"{bucket_arn}/{key}" for key in control))
    yield denied(("s3:DeleteObject", "s3:PutObject"), (f"{bucket_arn}/{key}" for key in written))
    if own_role:
        others = (f"{other.rendezvous}x", f"{other.checkpoints(0)}x", f"{other.output}x", other.document)
        yield denied(every, (f"{bucket_arn}/{key}" for key in others))
    yield denied(("s3:DeleteBucket", "s3:PutBucketPolicy", "s3:PutLifecycleConfiguration"), (bucket_arn,))
    yield denied(
        (
            *("iam:PassRole", "iam:PutRolePolicy", "lambda:InvokeFunction", "events:PutEvents"),
            *("sagemaker:CreateTrainingJob", "sagemaker:StopTrainingJob"),
            *("states:SendTaskFailure", "states:SendTaskSuccess", "states:StartExecution", "sts:AssumeRole"),
        ),
        ("*",),
    )


def _example(arn: str) -> str:
    """An ARN that the pattern `arn` matches."""
    if arn == "*":
        return arn
    fields = _VARIABLE.sub(SAMPLE, arn).split(":", 5)
    # An account is a number.
    if len(fields) == 6 and fields[4] == "*":
        fields[4] = "0" * 12
    return ":".join(fields).replace("*", SAMPLE).replace("?", "0")


def _context(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Values under which the conditions hold."""
    found: dict[str, tuple[str, ...]] = {}
    for operator, keys in conditions.items():
        for key, value in keys.items():
            values = value if isinstance(value, list) else [value]
            # A request has one prefix, one service; a policy lists those that it allows.
            chosen = values if operator.startswith("ForAllValues") else values[:1]
            if operator.startswith("Null"):
                if str(value).lower() == "false":
                    found[key] = (SAMPLE,)
                continue
            found[key] = tuple(_VARIABLE.sub(SAMPLE, str(item)).replace("*", SAMPLE) for item in chosen)
    return found
