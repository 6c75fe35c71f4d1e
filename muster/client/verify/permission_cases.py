"""What each role must be allowed and what replicas must be denied, as requests that IAM can simulate. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.client.verify.stack_template import Statement
from muster.contract.layout import RunLayout

SAMPLE = "verify"
"""Stands for every wildcard: a simulation takes no patterns."""
OTHER = "another"
"""A run that is not the replica's own."""
REPLICA = "Replica"
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


def replica_needs(role_arn: str, bucket_arn: str, tags: Mapping[str, tuple[str, ...]]) -> Iterator[Case]:
    """What a container cannot do without, whoever wrote the role's policy."""
    run = RunLayout(SAMPLE)
    read, write = ("s3:GetObject",), ("s3:GetObject", "s3:PutObject")
    shared = (f"{run.rendezvous}x", f"{run.checkpoints(0)}x", f"{run.output}x")
    for actions, keys in ((read, (run.document, "source/x.tar.gz")), (write, shared)):
        yield Case(REPLICA, role_arn, actions, tuple(f"{bucket_arn}/{key}" for key in keys), tags, allowed=True)
    deleted = f"{bucket_arn}/{run.rendezvous}x"
    yield Case(REPLICA, role_arn, ("s3:DeleteObject",), (deleted,), tags, allowed=True)
    prefix = {**tags, "s3:prefix": (run.rendezvous,)}
    yield Case(REPLICA, role_arn, ("s3:ListBucket",), (bucket_arn,), prefix, allowed=True)


def replica_denials(role_arn: str, bucket_arn: str, tags: Mapping[str, tuple[str, ...]]) -> Iterator[Case]:
    """What user code must not be able to do: the control plane's objects, other starts of runs, other services."""
    run = RunLayout(SAMPLE)
    every = ("s3:DeleteObject", "s3:GetObject", "s3:PutObject")
    control = (run.plan, run.record(0), run.result, run.fence, run.page, run.queue_token, "queue/queue.json")
    written = (run.document, "source/x.tar.gz", "inbox/x.yaml")

    def denied(actions: tuple[str, ...], resources: Iterable[str]) -> Case:
        return Case(REPLICA, role_arn, actions, tuple(resources), tags, allowed=False)

    yield denied(every, (f"{bucket_arn}/{key}" for key in control))
    yield denied(("s3:DeleteObject", "s3:PutObject"), (f"{bucket_arn}/{key}" for key in written))
    yield denied(("s3:DeleteBucket", "s3:PutBucketPolicy", "s3:PutLifecycleConfiguration"), (bucket_arn,))
    yield denied(
        (
            *("iam:PassRole", "iam:PutRolePolicy", "lambda:InvokeFunction", "events:PutEvents"),
            *("sagemaker:CreateTrainingJob", "sagemaker:StopTrainingJob"),
            *("states:SendTaskFailure", "states:SendTaskSuccess", "states:StartExecution", "sts:AssumeRole"),
        ),
        ("*",),
    )


def replica_tags(statements: Iterable[Statement]) -> dict[str, tuple[str, ...]]:
    """The session tags that the replica role's policy names, with the sample's value."""
    names = (name for item in statements if item.role == REPLICA for arn in item.resources for name in _tags(arn))
    return dict.fromkeys(names, (SAMPLE,))


def _tags(arn: str) -> list[str]:
    return [name for name in _VARIABLE.findall(arn) if name.startswith("aws:PrincipalTag/")]


def _example(arn: str) -> str:
    """An ARN that the pattern `arn` matches."""
    if arn == "*":
        return arn
    fields = _VARIABLE.sub(SAMPLE, arn).split(":", 5)
    # An account is a number.
    if len(fields) == 6 and fields[4] == "*":
        fields[4] = "0" * 12
    return ":".join(fields).replace("*", SAMPLE)


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
