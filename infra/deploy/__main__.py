"""`python -m infra.deploy [--target local] [--settings FILE]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.deploy.cdk_tools import ROOT
from infra.deploy.deployment import deploy
from infra.settings.settings_file import SETTINGS_FILE, parse_settings, parse_tables, read_settings_file
from infra.settings.stack_settings import LOCAL_IMAGE, Platform, StackSettings
from muster.contract.errors import ConfigurationError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, or 1 with the error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m infra.deploy", description="Deploy the Muster stack.")
    parser.add_argument("--target", type=Platform, choices=list(Platform), default=Platform.AWS)
    parser.add_argument("--settings", type=Path, help=f"the settings file (./{SETTINGS_FILE})")
    parser.add_argument("--outputs", type=Path, default=ROOT / "build" / "deploy" / "outputs.json")
    options = parser.parse_args(arguments)
    try:
        deploy(
            os.environ,
            target=options.target,
            settings=_settings(options.settings, options.target),
            outputs=options.outputs,
        )
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    # The CDK has just printed the stack's outputs.
    print("\nMuster is deployed. Write a spec with `muster init`, start it with `muster launch run.yaml --watch`.")
    return 0


def _settings(path: Path | None, target: Platform) -> StackSettings:
    file = path or Path(SETTINGS_FILE)
    text = "" if path is None and not file.exists() else read_settings_file(file)
    document = parse_tables(text, file.name)
    if target is Platform.LOCAL:
        document = {**document, "replicas": {"image": LOCAL_IMAGE, **document.get("replicas", {})}}
    return parse_settings(document, target, text, file.name)


if __name__ == "__main__":
    sys.exit(main())
