"""The CDK app: one stack. Run by the CDK CLI (see cdk.json).

Its context has two keys of ours: `settings`, the path of the settings file, and `target`, aws or local.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from muster.contract.errors import MusterError
from muster.infra.deploy.bundle import build_bundle, build_replica_package
from muster.infra.deploy.cdk_tools import BUCKET_TEMPLATE, JSII_ENVIRONMENT, require_node
from muster.infra.settings.settings_file import SETTINGS_FILE, parse_settings, parse_tables, read_settings_file
from muster.infra.settings.stack_settings import Platform, StackSettings

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Write the cloud assembly.

    Raises:
        SettingsError: the settings cannot be used.
        ConfigurationError: node is missing, or pip failed.
    """
    require_node()
    # jsii starts node when aws_cdk is imported, and reads its settings then.
    for name, value in JSII_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from aws_cdk import App  # noqa: PLC0415

    from muster.infra.stack import MusterStack, StackFiles, bucket_template  # noqa: PLC0415

    app = App(analytics_reporting=False)
    target = Platform(app.node.try_get_context("target") or Platform.AWS)
    settings = _settings(app.node.try_get_context("settings"), target)
    files = StackFiles(
        bundle=build_bundle(ROOT, target),
        replica_package=build_replica_package(ROOT),
        definition=ROOT / "statemachine" / "run.asl.json",
    )
    MusterStack(app, settings, files)
    app.synth()
    if settings.bucket.existing is not None:
        # What the bucket must have, for muster.infra.deploy.bucket_requirements.
        template = json.dumps(bucket_template(settings.stack.name))
        (Path(app.outdir) / BUCKET_TEMPLATE).write_text(template, encoding="utf-8")


def _settings(path: str | None, target: Platform) -> StackSettings:
    """The settings of a file; without one, those of `muster.toml` in the root or else the defaults."""
    file = Path(path) if path is not None else ROOT / SETTINGS_FILE
    if path is None and not file.exists():
        return StackSettings()
    text = read_settings_file(file)
    return parse_settings(parse_tables(text, file.name), target, text, file.name)


if __name__ == "__main__":
    try:
        main()
    except MusterError as error:
        sys.exit(str(error))
