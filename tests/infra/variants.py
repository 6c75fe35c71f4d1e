"""The stacks that tests look at, by what their settings choose.

`python -m tests.infra.variants FOLDER` synthesizes all of them: node takes longer to start than to synthesize one.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.infra.build_places import WORKFLOW
from muster.infra.deploy.bundle import build_replica_package
from muster.infra.deploy.cdk_tools import JSII_ENVIRONMENT
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform, Tables
from tests.support.template import REARM_SECONDS, Template

Variant = Callable[..., Template]
"""By a name below; and the name of a stack, where there are several."""
HOME, ELSEWHERE = "123456789012", "210987654321"
"""The accounts of the variant with places."""

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd"
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
ROLE = "arn:aws:iam::123456789012:role/team/training"
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:wandb-AbC123"
POLICY = "arn:aws:iam::123456789012:policy/team/mlflow"

SNAPSHOTS: Tables = {
    "runs": {"snap_start": True},
    "hyperpod_clusters": {"research": {"eks_cluster": "research-eks", "namespaces": ["team-a"]}},
}

VARIANTS: Mapping[str, Tables] = {
    # What most tests look at.
    "plain": {"runs": {"rearm_seconds": REARM_SECONDS}, "replicas": {"image": "example/image:1"}},
    "bare": {},
    "policies": {"replicas": {"policy_arns": [POLICY]}},
    # A VPC, a key and a bucket's name of its own.
    "network": {
        "replicas": {
            "vpc": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
            "kms_key_arn": KEY,
        },
        "bucket": {"name": "team-rendezvous"},
    },
    # A role of its own, a prefix in upper case, and nothing that costs at rest.
    "other": {
        "replicas": {"role_arn": ROLE},
        "stack": {"job_prefix": "TeamA"},
        "watch": {"health_alarms": False, "dashboard": False},
    },
    "data": {
        "replicas": {
            "data": ["s3://team-data/sets/", "s3://team-data/labels/", "s3://public/"],
            "data_kms_key_arns": [KEY],
            "secrets": ["secretsmanager:team/hf-token", f"secretsmanager:{SECRET}", "ssm:/team/proxy"],
            "further_role_arns": [ROLE],
        },
        "recipes": {
            "sources": [
                "s3://team-recipes/tuned/",
                "s3://arn:aws:s3:us-east-1:123456789012:accesspoint/recipes/v1/",
            ]
        },
    },
    # Replicas on two clusters, whose endpoints are public.
    "clusters": {
        "hyperpod_clusters": {
            "research": {"eks_cluster": "research-eks", "namespaces": ["team-a", "team-b"]},
            "prod": {"eks_cluster": "prod-eks", "namespaces": ["default"]},
        },
        "replicas": {
            "data": ["s3://team-data/sets/"],
            "secrets": ["ssm:/team/proxy"],
            "secrets_kms_key_arns": [KEY],
        },
    },
    # On one whose endpoint only its VPC reaches, with a bucket that exists already.
    "private": {
        "bucket": {"existing": "bucket-of-ours"},
        "hyperpod_clusters": {
            "research": {
                "eks_cluster": "research-eks",
                "namespaces": ["team-a"],
                "subnets": ["subnet-2", "subnet-1"],
                "security_group_ids": ["sg-1"],
            },
        },
    },
    # Replicas in a region of this account and in one of another.
    "places": {
        "stack": {"account": HOME, "region": "us-east-1", "permissions_boundary": BOUNDARY},
        "places": {
            "oregon": {"region": "us-west-2"},
            "tokyo": {"region": "ap-northeast-1", "account": ELSEWHERE},
        },
    },
    # With a cluster; with what a function's version must not depend on, and with what it must.
    "snapshots": SNAPSHOTS,
    "snapshots, tagged": {**SNAPSHOTS, "stack": {"tags": {"team": "research"}}},
    "snapshots, other bucket": {**SNAPSHOTS, "bucket": {"name": "team-runs"}},
    "snapshots, changed": {**SNAPSHOTS, "runs": {"snap_start": True, "max_concurrent_replicas": 7}},
    # As much of everything as the settings allow: more than AWS does.
    "large": {
        "replicas": {
            "vpc": {"subnets": [f"subnet-{n}" for n in range(1, 17)], "security_group_ids": ["sg-1"]},
            "data": [f"s3://team-data/{letter * 100}/" for letter in "abcdefghijklmnopqrst"],
        },
        "hyperpod_clusters": {"research": {"eks_cluster": "research-eks", "namespaces": ["team-a"]}},
        "schedules": {
            f"nightly-{n}": {
                "at": "rate(1 day)",
                "spec": {
                    "replicas": 1,
                    "entrypoint": ["echo"],
                },
            }
            for n in range(1, 31)
        },
    },
    # A key, a boundary, tags, access logs and a schedule, under another name.
    "Nist": {
        "stack": {
            "name": "Nist",
            "kms_key_arn": KEY,
            "permissions_boundary": BOUNDARY,
            "tags": {"team": "research"},
        },
        "bucket": {"access_logs_bucket": "logs", "access_logs_prefix": "muster/"},
        "schedules": {
            "nightly": {"at": "cron(0 3 * * ? *)", "spec": {"replicas": 1, "entrypoint": ["echo", "<time>"]}}
        },
    },
}
"""The settings of each variant."""


def synthesize(folder: Path) -> None:
    """Write each variant's assembly to a folder of its name in `folder`."""
    # The gate validates templates. Node reads this when aws_cdk is imported.
    os.environ |= {**JSII_ENVIRONMENT, "CDK_VALIDATION": "false"}
    from aws_cdk import App  # noqa: PLC0415

    from muster.infra.stack import MusterStack, StackFiles  # noqa: PLC0415
    from muster.infra.stack_option import stack_options  # noqa: PLC0415

    # Tests look at the template alone: the functions' code is a small archive, which needs no installation.
    archive = build_replica_package()
    files = StackFiles(archive, archive, WORKFLOW)
    for name, tables in VARIANTS.items():
        app = App(analytics_reporting=False, outdir=str(folder / name))
        settings = parse_settings(tables, Platform.AWS)
        MusterStack(app, settings.stack.name, settings=settings, files=files)
        for option in stack_options(settings):
            option.add_stacks(app, settings)
        app.synth()


if __name__ == "__main__":
    synthesize(Path(sys.argv[1]))
