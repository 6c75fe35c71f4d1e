"""What each role must be allowed and what replicas must be denied, as requests that IAM can simulate. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.client.verify.stack_template import Statement
from muster.contract.aws.session_tags import SESSION_TAGS, TAG_MODEL
from muster.contract.layout import RunLayout
from muster.contract.names import TRAINING_LOG_GROUP, JobName
from muster.contract.run.source_delivery import package_key, source_key

SAMPLE = "verify"
"""Stands for every wildcard: a simulation takes no patterns."""
OTHER = "another"
"""The name of another run."""
REPLICA = "Replica"
_TAGS = {f"aws:PrincipalTag/{tag}": (SAMPLE,) for tag in SESSION_TAGS}
_WITHOUT_MODEL = frozenset({f"aws:PrincipalTag/{TAG_MODEL}".lower()})
"""Sessions of few runs have this tag: IAM may name it as missing."""
_VARIABLE = re.compile(r"\$\{(aws:[^}]+)\}")


@dataclass(frozen=True)
class Site:
    """The resources of a stack that the requests of a container name."""

    partition: str
    region: str
    account: str
    bucket: str
    job_prefix: str
    role_arn: str
    """The role of the replicas."""
    launcher_arn: str
    """The role of the sessions that create jobs."""
    attempt_arn: str
    """A function that only the workflow invokes."""
    bus_arn: str
    state_machine_arn: str

    @property
    def bucket_arn(self) -> str:
        """The ARN of the stack's bucket."""
        return f"arn:{self.partition}:s3:::{self.bucket}"

    def objects(self, keys: Iterable[str]) -> tuple[str, ...]:
        """The ARNs of objects in the bucket."""
        return tuple(f"{self.bucket_arn}/{key}" for key in keys)

    def job(self, run: str) -> JobName:
        """The first job of a run."""
        return JobName(self.job_prefix, run, 0, 1)

    def job_arn(self, run: str) -> str:
        """The ARN of that job."""
        return self._arn("sagemaker", f"training-job/{self.job(run)}")

    def log_stream_arn(self, run: str) -> str:
        """The ARN of the log stream of that job."""
        return self._arn("logs", f"log-group:{TRAINING_LOG_GROUP}:log-stream:{self.job(run)}/algo-1-1700000000")

    @property
    def session(self) -> dict[str, tuple[str, ...]]:
        """The condition keys of every request that a container of the run `verify` makes in the stack's account."""
        return {**_TAGS, "aws:ResourceAccount": (self.account,)}

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"


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
    absent: frozenset[str] = frozenset()
    """Condition keys, in lower case, that such a request does not have; IAM may name them as missing."""


def needed(statements: Iterable[Statement]) -> Iterator[Case]:
    """What the deployed template allows: each statement as a request that it should match."""
    known = tuple(statements)
    for statement in known:
        resources = tuple(_example(arn) for arn in statement.resources)
        named = (*statement.resources, json.dumps(statement.conditions))
        tags = {name: (SAMPLE,) for text in named for name in _VARIABLE.findall(text)}
        context = {**tags, **_context(statement.conditions)}
        # What a statement wants to be absent is not given.
        absent = _keys(statement) - {key.lower() for key in context}
        absent |= _foreign(known, statement.role, statement.actions)
        absent |= (_WITHOUT_MODEL & _keys_of(known, statement.role)) - {key.lower() for key in context}
        yield Case(statement.role, statement.role_arn, statement.actions, resources, context, True, statement, absent)


def replica_needs(site: Site) -> Iterator[Case]:
    """What a container cannot do without, also with a role of the deployment's own."""
    run = RunLayout(SAMPLE)
    read, write = ("s3:GetObject",), ("s3:GetObject", "s3:PutObject")
    shared = (f"{run.rendezvous}x", f"{run.checkpoints(0)}x", f"{run.output}x")
    delivered = (run.document, source_key("0" * 64), package_key("0" * 64))
    requests = ((read, delivered), (write, shared), (("s3:DeleteObject",), shared[:2]))
    for actions, keys in requests:
        objects = site.objects(keys)
        yield Case(REPLICA, site.role_arn, actions, objects, site.session, allowed=True, absent=_WITHOUT_MODEL)
    listing = {**site.session, "s3:prefix": (run.rendezvous,)}
    bucket = (site.bucket_arn,)
    yield Case(REPLICA, site.role_arn, _LIST, bucket, listing, allowed=True, absent=_WITHOUT_MODEL)


def replica_denials(site: Site, statements: Iterable[Statement]) -> Iterator[Case]:
    """What user code must not be able to do: the control plane's objects, other runs, other services.

    `statements` are the stack's. A role that the deployment brings has none of them, and need not keep runs apart.
    """
    known = tuple(statements)
    run = RunLayout(SAMPLE)
    every = ("s3:DeleteObject", "s3:GetObject", "s3:PutObject")
    control = (run.plan, run.record(0), run.result, run.fence, run.page, run.queue_token, "queue/queue.json")
    written = (run.document, source_key("0" * 64), package_key("0" * 64), "inbox/x.yaml")
    bucket = (site.bucket_arn,)
    requests: list[_Request] = [
        (every, site.objects(control), {}),
        (("s3:DeleteObject", "s3:PutObject"), site.objects(written), {}),
        (("s3:DeleteBucket", "s3:PutBucketPolicy", "s3:PutLifecycleConfiguration"), bucket, {}),
        (("sts:AssumeRole",), (site.launcher_arn,), {}),
        (("iam:PassRole",), (site.role_arn,), {"iam:PassedToService": ("sagemaker.amazonaws.com",)}),
        (("iam:PutRolePolicy",), (site.role_arn,), {}),
        (("lambda:InvokeFunction",), (site.attempt_arn,), {}),
        (("events:PutEvents",), (site.bus_arn,), {}),
        (("states:StartExecution",), (site.state_machine_arn,), {}),
        # Neither has a resource level.
        (("states:SendTaskFailure", "states:SendTaskSuccess"), ("*",), {}),
        (
            ("sagemaker:CreateTrainingJob", "sagemaker:StopTrainingJob"),
            (site.job_arn(SAMPLE), site.job_arn(OTHER)),
            {},
        ),
    ]
    if any(statement.role == REPLICA for statement in known):
        requests += _between_runs(site)
    for actions, resources, context in requests:
        absent = _foreign(known, REPLICA, actions) | (_WITHOUT_MODEL & _keys_of(known, REPLICA))
        if actions == _LIST and "s3:prefix" not in context:
            absent |= {"s3:prefix"}
        given = {**site.session, **context}
        yield Case(REPLICA, site.role_arn, actions, resources, given, allowed=False, absent=absent)


_Request = tuple[tuple[str, ...], tuple[str, ...], dict[str, tuple[str, ...]]]
_LIST = ("s3:ListBucket",)


def _between_runs(site: Site) -> Iterator[_Request]:
    """What would reach another run: its objects, their names, its logs."""
    other = RunLayout(OTHER)
    keys = (f"{other.rendezvous}x", f"{other.checkpoints(0)}x", f"{other.output}x", other.document)
    yield ("s3:DeleteObject", "s3:GetObject", "s3:PutObject"), site.objects(keys), {}
    bucket = (site.bucket_arn,)
    yield _LIST, bucket, {}
    for prefix in ("", "control/", other.rendezvous, other.checkpoints(0), other.output):
        yield _LIST, bucket, {"s3:prefix": (prefix,)}
    # The job names of a run whose name continues this one's begin like those of this run.
    streams = (site.log_stream_arn(OTHER), site.log_stream_arn(f"{SAMPLE}-r1"))
    yield ("logs:CreateLogStream", "logs:PutLogEvents"), streams, {}


def _keys(statement: Statement) -> frozenset[str]:
    """The condition keys that a statement asks for, in lower case."""
    named = (*statement.resources, json.dumps(statement.conditions))
    keys = [key for block in statement.conditions.values() for key in block]
    return frozenset(key.lower() for key in [*keys, *(name for text in named for name in _VARIABLE.findall(text))])


def _keys_of(statements: Iterable[Statement], role: str) -> frozenset[str]:
    """The condition keys that the statements of a role ask for."""
    return frozenset[str]().union(*(_keys(one) for one in statements if one.role == role))


def _foreign(statements: Iterable[Statement], role: str, actions: Iterable[str]) -> frozenset[str]:
    """The keys of the role's statements about other actions: no request of `actions` has them."""
    of_role = [statement for statement in statements if statement.role == role]
    apart = [statement for statement in of_role if not set(actions) & set(statement.actions)]
    return frozenset().union(*map(_keys, apart))


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
