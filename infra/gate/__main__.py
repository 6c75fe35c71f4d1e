"""`python -m muster.infra.gate`: writes the stack's variants to build/gate, and says what cdk-nag finds in them.

The CDK prints all of them to stderr, the accepted ones too. `make check` then gives the templates to cfn-lint.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from muster.infra.build_places import PACKAGE, WORKFLOW
from muster.infra.deploy.bundle import build_replica_package
from muster.infra.deploy.cdk_tools import JSII_ENVIRONMENT
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform, Tables

FOLDER = PACKAGE.parent / "build" / "gate"

_ACCOUNT = "123456789012"
_KEY = f"arn:aws:kms:us-east-1:{_ACCOUNT}:key/11111111-2222-3333-4444-555555555555"

VARIANTS: Mapping[str, Tables] = {
    "default": {},
    # Everything that a deployment can add.
    "full": {
        "stack": {
            "kms_key_arn": _KEY,
            "permissions_boundary": f"arn:aws:iam::{_ACCOUNT}:policy/boundary",
            "tags": {"team": "research"},
        },
        "bucket": {"name": "muster-gate", "access_logs_bucket": "logs-gate", "access_logs_prefix": "muster/"},
        "replicas": {
            "image": f"{_ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/training:7",
            "instance_type": "ml.g5.2xlarge",
            "vpc": {"subnets": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]},
            "tags": {"team": "research"},
        },
        "runs": {"max_concurrent_replicas": 100, "snap_start": True},
        "notify": {"email": "team@example.com"},
        "schedules": {"nightly": {"at": "cron(0 3 * * ? *)", "spec_key": "inbox/nightly.yaml"}},
    },
    # Replicas on clusters, one of which only its VPC reaches.
    "clusters": {
        "stack": {"kms_key_arn": _KEY},
        "replicas": {"data": ["s3://team-data/sets/"]},
        "hyperpod_clusters": {
            "research": {
                "eks_cluster": "research-eks",
                "namespaces": ["team-a", "team-b"],
                "subnets": ["subnet-0a1b2c3d"],
                "security_group_ids": ["sg-0a1b2c3d"],
            },
            "prod": {"eks_cluster": "prod-eks", "namespaces": ["default"]},
        },
    },
    # Replicas in two other regions, one of another account.
    "places": {
        "stack": {"account": _ACCOUNT, "region": "us-east-1"},
        "replicas": {"data": ["s3://team-data/sets/"], "secrets": ["ssm:/team/proxy"]},
        "places": {
            "oregon": {"region": "us-west-2"},
            "tokyo": {"region": "ap-northeast-1", "account": "210987654321"},
        },
    },
    # Everything that a deployment can leave out or bring itself.
    "least": {
        "bucket": {"existing": "bucket-of-ours"},
        "replicas": {"role_arn": f"arn:aws:iam::{_ACCOUNT}:role/replicas"},
        "runs": {"sweep_hours": 0},
        "watch": {"health_alarms": False, "dashboard": False},
    },
}
"""The settings of each variant."""

ACCEPTED = {
    "AwsSolutions-IAM5": "tests/infra/test_access.py allows no wildcard where a service can name the resource; "
    "docs/security.md lists every statement.",
    "AwsSolutions-L1": "python3.13 is supported until 2029, and the packages in the bundle are compiled for it.",
    "AwsSolutions-S1": "A deployment that needs access logs sets a bucket for them; by default there is none.",
    "AwsSolutions-SF1": "Errors are logged. Every step is in an execution's history, for which nothing is charged.",
    "AwsSolutions-SF2": "The history and the run's page show every step with its time; X-Ray would charge for a copy.",
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": "CloudWatch encrypts every group; a key of one's own is a setting.",
    "NIST.800.53.R5-IAMNoInlinePolicy": "Each policy is written for one role and is deleted with it.",
    "NIST.800.53.R5-LambdaConcurrency": "Reserved concurrency is taken from the account's other functions. A throttled "
    "call is retried for hours.",
    "NIST.800.53.R5-LambdaInsideVPC": "The functions call public AWS interfaces over TLS alone; in a VPC each would "
    "need a NAT or eight endpoints.",
    "NIST.800.53.R5-S3BucketLoggingEnabled": "As AwsSolutions-S1.",
    "NIST.800.53.R5-S3BucketReplicationEnabled": "It would copy every round; users copy the results that they keep.",
    "NIST.800.53.R5-S3BucketVersioningEnabled": "Each round writes and deletes as many bytes as the model has; "
    "documents that must last cannot be overwritten.",
    "NIST.800.53.R5-S3DefaultEncryptionKMS": "S3's own key, unless the deployment names one, which costs by request.",
    "NIST.800.53.R5-SNSEncryptedKMS": "Messages name runs and keys, no data; a key of one's own is a setting.",
}
"""The rules of cdk-nag that the stack does not follow, each with the reason."""


def main() -> int:
    """Write and check every variant: 0 if nothing is open, otherwise 1."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    found = [(rule, line) for variant in VARIANTS for rule, line in synthesize(variant)]
    still_open = [line for rule, line in found if rule not in ACCEPTED]
    stale = [f"{rule} is accepted, but nothing breaks it any more" for rule in ACCEPTED.keys() - dict(found).keys()]
    print("\n".join([*still_open, *stale]) or f"cdk-nag: {len(found)} findings, all accepted with a reason.")
    return 1 if still_open or stale else 0


def synthesize(variant: str) -> Iterator[tuple[str, str]]:
    """Write a variant's template; what cdk-nag finds, as `violations`."""
    os.environ |= JSII_ENVIRONMENT  # jsii starts node when aws_cdk is imported, and reads its settings then
    from aws_cdk import App, Validations  # noqa: PLC0415
    from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks  # noqa: PLC0415

    from muster.infra.stack import MusterStack, StackFiles  # noqa: PLC0415
    from muster.infra.stack_option import stack_options  # noqa: PLC0415

    app = App(analytics_reporting=False, outdir=str(FOLDER / variant))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), NIST80053R5Checks(app))
    settings = parse_settings(VARIANTS[variant], Platform.AWS)
    # The checkers look at the template alone: the functions' code is a small archive, which needs no installation.
    archive = build_replica_package()
    MusterStack(app, settings.stack.name, settings=settings, files=StackFiles(archive, archive, WORKFLOW))
    for option in stack_options(settings):
        option.add_stacks(app, settings)
    # Any finding fails the synthesis, after template and report are written.
    with suppress(RuntimeError):
        app.synth()
    return violations(FOLDER / variant / "validation-report.json")


def violations(report: Path) -> Iterator[tuple[str, str]]:
    """Each finding of a synthesis as its rule, without what in the resource breaks it, and as a line to print."""
    for plugin in json.loads(report.read_text(encoding="utf-8"))["pluginReports"]:
        for violation in plugin["violations"]:
            for construct in violation["violatingConstructs"]:
                line = f"{construct['constructPath']}: {violation['ruleName']}: {violation['description']}"
                yield violation["ruleName"].partition("[")[0], line


if __name__ == "__main__":
    sys.exit(main())
