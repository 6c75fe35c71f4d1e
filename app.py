"""The CDK app: one stack per account and region. Run by the CDK CLI (see cdk.json)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from infra.bundle import build_bundle
from infra.node import require_node
from infra.replica_package import build_replica_package
from infra.settings import StackSettings
from muster.contract.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Write the cloud assembly.

    Raises:
        ConfigurationError: node is missing, a context key cannot be used, or pip failed.
    """
    require_node()
    # jsii starts node when aws_cdk is imported: not before it is known to be there.
    os.environ.setdefault("JSII_RUNTIME_PACKAGE_CACHE", "enabled")  # 3 s of unpacking at every start otherwise
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    from aws_cdk import App  # noqa: PLC0415

    from infra.stack import MusterStack  # noqa: PLC0415

    app = App(analytics_reporting=False)
    settings = StackSettings.from_context(app.node.try_get_context)
    MusterStack(
        app,
        settings,
        bundle=build_bundle(ROOT, settings.target),
        replica_package=build_replica_package(ROOT),
        definition=ROOT / "statemachine" / "run.asl.json",
    )
    app.synth()


if __name__ == "__main__":
    try:
        main()
    except ConfigurationError as error:
        sys.exit(str(error))
