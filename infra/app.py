"""The CDK app: `app.py` in a clone, `python -m muster.infra.app` where Muster is installed.

It has the stack, and those that options add. Its context has three keys of ours: `settings`, the path of the settings
file; `target`, aws or local; and `published`, whether the template is for CloudFormation alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from muster.contract.errors import MusterError
from muster.infra.deploy.cdk_tools import BUCKET_TEMPLATE, JSII_ENVIRONMENT, PUBLISHED, require_node
from muster.infra.deploy.kept_assemblies import KeptAssembly
from muster.infra.settings.settings_file import SettingsFile, parse_settings
from muster.infra.settings.stack_settings import Platform, StackSettings

_OVERFLOW = "CONTEXT_OVERFLOW_LOCATION_ENV"
"""Where the CDK CLI leaves a context that is too long for a variable."""


def main() -> int:
    """Write the cloud assembly; the exit code. A user's mistake is one line."""
    try:
        _synthesize()
    except MusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _synthesize() -> None:
    require_node()
    kept = _kept()
    if kept is not None and kept.restore(Path(os.environ["CDK_OUTDIR"])):
        return
    # jsii starts node when aws_cdk is imported, and reads its settings then.
    for name, value in JSII_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from aws_cdk import App  # noqa: PLC0415

    from muster.infra.stack import MusterStack, StackFiles, bucket_template, published_stack  # noqa: PLC0415
    from muster.infra.stack_option import stack_options  # noqa: PLC0415

    app = App(analytics_reporting=False)
    target = Platform(app.node.try_get_context("target") or Platform.AWS)
    settings = _settings(app.node.try_get_context("settings"), target)
    files = StackFiles.built(target)
    if app.node.try_get_context(PUBLISHED):
        published_stack(app, settings, files)
    else:
        MusterStack(app, settings.stack.name, settings=settings, files=files)
    for option in stack_options(settings):
        option.add_stacks(app, settings)
    app.synth()
    if settings.bucket.existing is not None:
        # What the bucket must have, for muster.infra.deploy.bucket_requirements.
        template = json.dumps(bucket_template(settings))
        (Path(app.outdir) / BUCKET_TEMPLATE).write_text(template, encoding="utf-8")
    if kept is not None:
        kept.keep(Path(app.outdir))


def _kept() -> KeptAssembly | None:
    """The place of an assembly that follows from what is known here: one for the embedded cloud, in a new folder."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("CDK_")}
    outdir = variables.pop("CDK_OUTDIR", None)
    context: dict[str, Any] = json.loads(variables.pop("CDK_CONTEXT_JSON", "{}"))
    if context.get("target") != Platform.LOCAL or outdir is None or _OVERFLOW in os.environ:
        return None
    if Path(outdir).exists() and any(Path(outdir).iterdir()):
        return None
    settings = _settings(context.pop("settings", None), Platform.LOCAL)
    return KeptAssembly(settings, variables | {name: value for name, value in context.items() if value})


def _settings(path: str | None, target: Platform) -> StackSettings:
    """The settings of a file: the JSON that a deployment has written, or TOML; by default of the working directory."""
    if path is not None and path.endswith(".json"):
        return parse_settings(json.loads(Path(path).read_text(encoding="utf-8")), target)
    file = SettingsFile.read(None if path is None else Path(path))
    return parse_settings(file.tables, target, file.text, file.name)


if __name__ == "__main__":
    sys.exit(main())
