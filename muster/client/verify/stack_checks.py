"""Whose credentials are used, and whether the stack is whole and of the client's version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from muster.client.verify.services import Account, Identity
from muster.client.verify.verification import Check, info, judged

CREDENTIALS, STACK, VERSION = "credentials", "stack", "version"

OUTPUTS = (
    *("StateMachineArn", "BucketName", "JobPrefix", "ReplicaRoleArn", "ReplicaDefaults", "EventBusName"),
    *("NotificationTopicArn", "DeadLetterQueueUrl", "Region", "Version"),
)
"""The outputs that the client and its users rely on."""


@dataclass(frozen=True)
class StackFacts:
    """What is known of the credentials and of the stack."""

    identity: Identity
    region: str
    partition_of_region: str
    name: str
    status: str
    outputs: Mapping[str, str]
    client_version: str


def gather_stack(account: Account) -> StackFacts:
    """Two calls: whose credentials these are, and the stack."""
    region = account.session.region_name
    return StackFacts(
        identity=account.identity,
        region=region,
        partition_of_region=account.session.get_partition_for_region(region),
        name=account.cloud.stack.name,
        status=account.description["StackStatus"],
        outputs=account.outputs,
        client_version=version("muster-train"),
    )


def judge_stack(facts: StackFacts) -> Iterator[Check]:
    """Credentials, then the stack, then the version."""
    identity, partition = facts.identity, facts.identity.partition
    foreign = (
        [f"the credentials belong to the partition {partition}, and {facts.region} is in {facts.partition_of_region}"]
        if partition != facts.partition_of_region
        else []
    )
    seen = f"account {identity.account}, as {identity.arn}, in {facts.region} (partition {partition})."
    yield judged(CREDENTIALS, foreign, seen, "Choose a profile and a region of the same partition.")
    missing = [name for name in OUTPUTS if not facts.outputs.get(name)]
    problems = [f"{facts.name} is {facts.status}"] if not facts.status.endswith("_COMPLETE") else []
    problems += [f"{facts.name} was rolled back ({facts.status})"] if "ROLLBACK" in facts.status else []
    problems += [f"the outputs {', '.join(missing)} are missing"] if missing else []
    if facts.outputs.get("Region", facts.region) != facts.region:
        problems.append(f"the output Region is {facts.outputs['Region']}")
    seen = f"{facts.name} is {facts.status} and has all {len(OUTPUTS)} outputs."
    yield judged(STACK, problems, seen, "Deploy the stack again, and read the first error of the deployment.")
    yield _version(facts)


def _version(facts: StackFacts) -> Check:
    deployed = facts.outputs.get("Version") or "older than 0.1.0"
    if deployed == facts.client_version:
        return judged(VERSION, [], f"{deployed} is deployed, and the client is the same.")
    seen = f"{deployed} is deployed, and the client is {facts.client_version}."
    return info(VERSION, seen, "Deploy the client's version, or install the deployed one.")
