"""`python -m infra.deploy [--target local] [-c key=value]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.deploy.cdk_tools import ROOT
from infra.deploy.deployment import deploy
from infra.settings.stack_settings import LOCAL_IMAGE, Platform
from muster.contract.errors import ConfigurationError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m infra.deploy", description="Deploy the Muster stack.")
    parser.add_argument("--target", type=Platform, choices=list(Platform), default=Platform.AWS)
    parser.add_argument(
        "-c",
        "--context",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of infra/settings/stack_settings.py, for example replica_image, sweep_hours or notify_email",
    )
    parser.add_argument("--outputs", type=Path, default=ROOT / "build" / "deploy" / "outputs.json")
    options = parser.parse_args(arguments)
    context: dict[str, str | int] = {"replica_image": LOCAL_IMAGE} if options.target is Platform.LOCAL else {}
    for pair in options.context:
        key, equals, value = pair.partition("=")
        if not equals:
            parser.error(f"--context takes KEY=VALUE; found {pair}")
        context[key] = value
    try:
        deploy(os.environ, target=options.target, context=context, outputs=options.outputs)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    # The CDK has just printed the stack's outputs.
    print("\nMuster is deployed. Write a spec with `muster init`, start it with `muster launch run.yaml --watch`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
