"""The CDK app: one stack per account and region. Run by the CDK CLI (see cdk.json)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from infra.deploy.bundle import build_bundle, build_replica_package
from infra.deploy.cdk_tools import JSII_ENVIRONMENT, require_node
from infra.settings.stack_settings import StackSettings
from muster.contract.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Write the cloud assembly.

    Raises:
        ConfigurationError: node is missing, a context key cannot be used, or pip failed.
    """
    require_node()
    # jsii starts node when aws_cdk is imported, and reads its settings then.
    for name, value in JSII_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from aws_cdk import App  # noqa: PLC0415

    from infra.stack import MusterStack, StackFiles  # noqa: PLC0415

    app = App(analytics_reporting=False)
    settings = StackSettings.from_context(app.node.try_get_context)
    files = StackFiles(
        bundle=build_bundle(ROOT, settings.target),
        replica_package=build_replica_package(ROOT),
        definition=ROOT / "statemachine" / "run.asl.json",
    )
    MusterStack(app, settings, files)
    app.synth()


if __name__ == "__main__":
    try:
        main()
    except ConfigurationError as error:
        sys.exit(str(error))
