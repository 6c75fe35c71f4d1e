"""The stack as a template that CloudFormation deploys by itself: without the CDK, its bootstrap and its command line.

Two parameters name where the functions' code lies: Lambda reads it from a bucket of the stack's own region.
"""

from __future__ import annotations

from aws_cdk import App, CfnParameter, DefaultStackSynthesizer

from muster.infra.deploy.cdk_tools import ASSETS_PREFIX
from muster.infra.settings.stack_settings import StackSettings
from muster.infra.stack import MusterStack, StackFiles

_BUCKET, _PREFIX = "AssetsBucket", "AssetsPrefix"


def published_stack(app: App, settings: StackSettings, files: StackFiles) -> MusterStack:
    """The stack with the parameters `AssetsBucket` and `AssetsPrefix` in the place of the CDK's own bucket."""
    synthesizer = DefaultStackSynthesizer(
        file_assets_bucket_name=f"${{{_BUCKET}}}",
        bucket_prefix=f"${{{_PREFIX}}}",
        generate_bootstrap_version_rule=False,
    )
    stack = MusterStack(app, settings.stack.name, settings=settings, files=files, synthesizer=synthesizer)
    CfnParameter(
        stack,
        _BUCKET,
        description="Bucket of this region with the files that lie beside this template",
        allowed_pattern=r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        constraint_description="must be the name of a bucket, without s3://",
    )
    CfnParameter(
        stack,
        _PREFIX,
        description="First part of their keys, with a slash at its end; empty where they lie at the top of the bucket",
        default=ASSETS_PREFIX,
        allowed_pattern=r"([^/].*/)?",
        constraint_description="must be empty or end with a slash, and not begin with one",
    )
    return stack
