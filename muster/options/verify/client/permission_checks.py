"""Every role's permissions, as IAM simulates them: policies, permissions boundaries and the organization's policies."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from muster.contract.layout import RunLayout
from muster.contract.names import TRAINING_LOG_GROUP, JobName
from muster.contract.run.session_tags import SESSION_TAGS, TAG_MODEL
from muster.contract.text import some_of
from muster.contract.training.source_delivery import package_key, source_key
from muster.options.verify.client.check_outcomes import Check, CheckOutcome, check, judged
from muster.options.verify.client.verified_stack import Account, Statement, many, statement_text

DENIALS = "permissions-denied-to-replicas"
SAMPLE, OTHER = "verify", "another"
"""Stands for every wildcard, because a simulation takes no patterns; and the name of another run."""
REPLICA = "Replica"
_VARIABLE = re.compile(r"\$\{(aws:[^}]+)\}")
# The rate is IAM's, for the whole account; more calls at once would only be throttled.
_PARALLEL = 4
_SHOWN_MAX = 5


class SimulatedRight(NamedTuple):
    """What IAM decides about one action on one resource; `missing`: condition keys that might decide otherwise."""

    statement: Statement
    request: str
    allowed: bool
    missing: Sequence[str] = ()


def permissions(account: Account) -> Iterator[Check]:
    """One check for each role, with one call for each action of its statements; then what replicas are denied."""
    known = list(account.template.statements())
    roles = {statement.role: statement.role_arn for statement in known}
    needed: dict[str, list[Statement]] = {}
    for statement in (*known, *_replica_needs(account)):
        needed.setdefault(statement.role, []).append(statement)
    account.client("iam")  # before threads use it
    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:

        def decided(statements: Iterable[Statement]) -> list[SimulatedRight]:
            return [right for found in pool.map(partial(_simulated, account, known), statements) for right in found]

        for role, statements in needed.items():
            yield judge(f"permissions-{role.lower()}", role, decided(statements), allowed=True)
        yield judge(DENIALS, REPLICA, decided(_denials(account, roles)), allowed=False)


def _replica(account: Account, actions: str, resources: Iterable[str], **keys: str) -> Statement:
    """A statement about the role of the containers, with these condition keys (`s3_prefix` is s3:prefix)."""
    conditions = {"StringEquals": {key.replace("_", ":"): value for key, value in keys.items()}} if keys else {}
    return Statement(REPLICA, account.output("ReplicaRoleArn"), actions.split(), list(resources), conditions)


def _objects(account: Account, *keys: str) -> list[str]:
    return [f"arn:{account.partition}:s3:::{account.cloud.stack.bucket}/{key}" for key in keys]


def _replica_needs(account: Account) -> Iterator[Statement]:
    """What a container cannot do without, also with a role of the deployment's own."""
    run = RunLayout(SAMPLE)
    shared = _objects(account, f"{run.rendezvous}x", f"{run.checkpoints(0)}x", f"{run.output}x")
    delivered = _objects(account, run.document, source_key("0" * 64), package_key("0" * 64))
    yield _replica(account, "s3:GetObject", [*delivered, *shared])
    yield _replica(account, "s3:PutObject", shared)
    yield _replica(account, "s3:DeleteObject", shared[:2])
    bucket = f"arn:{account.partition}:s3:::{account.cloud.stack.bucket}"
    yield _replica(account, "s3:ListBucket", [bucket], s3_prefix=run.rendezvous)


def _denials(account: Account, roles: Mapping[str, str]) -> Iterator[Statement]:
    """What user code must not be able to do: the control plane's objects, other services, and where its role is among
    the `roles` of the stack, other runs: a role that the deployment brings need not keep them apart."""
    stack, run, other, role = account.cloud.stack, RunLayout(SAMPLE), RunLayout(OTHER), account.output("ReplicaRoleArn")
    every, bucket = "s3:DeleteObject s3:GetObject s3:PutObject", [f"arn:{account.partition}:s3:::{stack.bucket}"]

    def job(name: str) -> str:
        return str(JobName(stack.job_prefix, name, 0, 1))

    jobs = [account.arn("sagemaker", f"training-job/{job(name)}") for name in (SAMPLE, OTHER)]
    functions = [name for _, name, _ in account.template.of_type("AWS::Lambda::Function")]
    control = _objects(account, run.plan, run.record(0), run.result, run.fence, run.page, "queue/queue.json")
    written = _objects(account, run.document, source_key("0" * 64), package_key("0" * 64), "inbox/x.yaml")
    # The job names of a run whose name continues this one's begin like those of this run.
    streams = [
        account.arn("logs", f"log-group:{TRAINING_LOG_GROUP}:log-stream:{job(name)}/algo-1-17")
        for name in (OTHER, f"{SAMPLE}-r1")
    ]
    others = _objects(account, f"{other.rendezvous}x", f"{other.checkpoints(0)}x", f"{other.output}x", other.document)
    requests = [
        (every, control),
        ("s3:DeleteObject s3:PutObject", written),
        ("s3:DeleteBucket s3:PutBucketPolicy s3:PutLifecycleConfiguration", bucket),
        ("sts:AssumeRole", [roles.get("Launcher", "")]),
        ("iam:PutRolePolicy", [role]),
        ("lambda:InvokeFunction", [account.arn("lambda", f"function:{one}") for one in functions]),
        ("events:PutEvents", [account.arn("events", f"event-bus/{account.output('EventBusName')}")]),
        ("states:StartExecution", [stack.state_machine_arn]),
        ("states:SendTaskFailure states:SendTaskSuccess", ["*"]),  # neither has a resource level
        ("sagemaker:CreateTrainingJob sagemaker:StopTrainingJob", jobs),
    ]
    yield _replica(account, "iam:PassRole", [role], iam_PassedToService="sagemaker.amazonaws.com")
    if REPLICA in roles:
        requests += [(every, others), ("s3:ListBucket", bucket), ("logs:CreateLogStream logs:PutLogEvents", streams)]
        for prefix in ("", "control/", other.rendezvous, other.checkpoints(0), other.output):
            yield _replica(account, "s3:ListBucket", bucket, s3_prefix=prefix)
    yield from (_replica(account, *request) for request in requests)


def example(arn: str) -> str:
    """An ARN that the pattern `arn` matches. An account is a number."""
    if arn == "*":
        return arn
    fields = _VARIABLE.sub(SAMPLE, arn).split(":", 5)
    if len(fields) == 6 and fields[4] == "*":
        fields[4] = "0" * 12
    return ":".join(fields).replace("*", SAMPLE).replace("?", "0")


def context(statement: Statement) -> dict[str, list[str]]:
    """Condition keys of a request that the statement matches; those that it wants to be absent are not there."""
    found = {key: [SAMPLE] for key in _variables(statement)}
    for operator, keys in statement.conditions.items():
        for key, value in keys.items():
            # A request has one prefix, one service; a policy lists those that it allows.
            values = many(value) if operator.startswith("ForAllValues") else many(value)[:1]
            if not operator.startswith("Null"):
                found[key] = [_VARIABLE.sub(SAMPLE, str(item)).replace("*", SAMPLE) for item in values]
            elif str(value).lower() == "false":
                found[key] = [SAMPLE]
    return found


def _variables(statement: Statement) -> list[str]:
    return _VARIABLE.findall(json.dumps([list(statement.resources), statement.conditions]))


def _simulated(account: Account, known: Iterable[Statement], statement: Statement) -> list[SimulatedRight]:
    keys = context(statement)
    if statement.role == REPLICA:
        # Of every request of a container of the run `verify`, in the stack's account.
        tags = {f"aws:PrincipalTag/{tag}": [SAMPLE] for tag in SESSION_TAGS}
        keys = {**tags, "aws:ResourceAccount": [account.identity["Account"]], **keys}
    entries = [
        {"ContextKeyName": key, "ContextKeyValues": values, "ContextKeyType": f"string{'List' * (len(values) > 1)}"}
        for key, values in keys.items()
    ]
    # What the role's own statements ask for is given where a request has it. Sessions of few runs have the model's tag.
    own = {f"aws:PrincipalTag/{TAG_MODEL}".lower()}
    for one in known:
        if one.role == statement.role:
            asked_for = [key for keys in one.conditions.values() for key in keys]
            own |= {key.lower() for key in (*_variables(one), *asked_for)}
    arguments: dict[str, Any] = {
        "PolicySourceArn": statement.role_arn,
        "ResourceArns": [example(arn) for arn in statement.resources],
        "ContextEntries": entries,
    }
    # IAM refuses actions in one call that "require different authorization information", and publishes no list.
    asked = partial(account.listed, "iam", "simulate_principal_policy", "EvaluationResults", **arguments)
    results = [result for action in statement.actions for result in asked(ActionNames=[action])]
    return [right for result in results for right in decisions(statement, result, own)]


def decisions(statement: Statement, result: Mapping[str, Any], own: Container[str]) -> Iterator[SimulatedRight]:
    """The decisions in one member of EvaluationResults, which itself is an aggregate over all resources.

    `own` are condition keys, in lower case, whose absence is meant.
    """
    aggregate = {**result, "EvalResourceDecision": result["EvalDecision"]}
    for item in result.get("ResourceSpecificResults") or [aggregate]:
        missing = [key for key in item.get("MissingContextValues", ()) if key.lower() not in own]
        request = f"{result['EvalActionName']} on {item.get('EvalResourceName', '*')}"
        yield SimulatedRight(statement, request, item["EvalResourceDecision"] == "allowed", missing)


def judge(name: str, role: str, found: Sequence[SimulatedRight], *, allowed: bool) -> Check:
    """All must be `allowed`, or all denied. A denial for want of a condition key is undecided; what is wrong is not."""
    undecided = [one for one in found if one.missing and not one.allowed]
    wrong = {one.request: one.statement for one in found if one.allowed is not allowed and one not in undecided}
    if undecided and not wrong:
        keys = ", ".join(sorted({key for one in undecided for key in one.missing}))
        seen = f"IAM denies {some_of([one.request for one in undecided], _SHOWN_MAX)}, but a policy asks for {keys}."
        remedy = "A policy beside the stack's own has these conditions: read it, and judge whether it applies."
        return check(name, CheckOutcome.UNCHECKED, seen, remedy)
    remedy = "Remove the permission from the role: task tokens and other runs' data would be open to user code."
    if allowed:
        texts = dict.fromkeys(statement_text(of.actions, of.resources, of.conditions) for of in wrong.values())
        remedy = " ".join(("Deploy the stack again, or add to the role (or to what limits it):", *texts))
    seen = f"the role {role} is {'allowed' if allowed else 'denied'} all {len(found)} requests that it "
    problems = {f"the role {role} may {'not ' * allowed}{some_of([*wrong], _SHOWN_MAX)}": wrong}
    return judged(name, f"{seen}{'needs' if allowed else 'must not make'}.", problems, remedy)
