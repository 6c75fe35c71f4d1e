"""The variants of the stack, synthesized with cdk-nag's rule packs.

`python -m muster.infra.gate.synthesis FOLDER` is a process of its own: node, which synthesizes, ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.infra.deploy.bundle import build_replica_package
from muster.infra.deploy.cdk_tools import JSII_ENVIRONMENT
from muster.infra.gate.finding import Finding, GateError
from muster.infra.gate.tools import run
from muster.infra.gate.variants import VARIANTS
from muster.infra.places import WORKFLOW
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform

if TYPE_CHECKING:
    from aws_cdk import App

_REPORT = "validation-report.json"
_TEMPLATE = "Muster.template.json"


def synthesize(folder: Path) -> dict[str, dict[str, Any]]:
    """The template of each variant, synthesized into a folder of its name below `folder` with the report of cdk-nag.

    Raises:
        GateError: the synthesis failed.
    """
    run([sys.executable, "-m", "muster.infra.gate.synthesis", str(folder)], expected=(0,))
    return {variant: json.loads(template_file(folder, variant).read_text(encoding="utf-8")) for variant in VARIANTS}


def template_file(folder: Path, variant: str) -> Path:
    """The template of a variant in a folder of `synthesize`."""
    return folder / variant / _TEMPLATE


def nag_findings(folder: Path) -> list[Finding]:
    """What cdk-nag and the CDK itself say in the report of a synthesis."""
    file = folder / _REPORT
    if not file.exists():
        message = f"The synthesis wrote no {file}: cdk-nag did not run."
        raise GateError(message)
    return [
        Finding("cdk-nag", violation["ruleName"], construct["constructPath"], violation["description"])
        for plugin in json.loads(file.read_text(encoding="utf-8"))["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    ]


def checked_app(folder: Path) -> App:
    """An app that writes to `folder` and is checked by both rule packs."""
    os.environ |= JSII_ENVIRONMENT  # jsii starts node when aws_cdk is imported, and reads its settings then
    from aws_cdk import App, Validations  # noqa: PLC0415
    from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks  # noqa: PLC0415

    app = App(analytics_reporting=False, outdir=str(folder))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), NIST80053R5Checks(app))
    return app


def write_assembly(app: App) -> None:
    """Synthesize: template and report."""
    # Any finding fails the synthesis after both are written; the caller reads the report.
    with suppress(RuntimeError):
        app.synth()


def _write_variant(variant: str, folder: Path) -> None:
    app = checked_app(folder)
    from muster.infra.stack import MusterStack, StackFiles  # noqa: PLC0415 - it imports aws_cdk

    # The checkers look at the template alone: the functions' code is a small archive, which needs no installation.
    archive = build_replica_package()
    settings = parse_settings(VARIANTS[variant], Platform.AWS)
    MusterStack(app, settings.stack.name, settings=settings, files=StackFiles(archive, archive, WORKFLOW))
    write_assembly(app)


if __name__ == "__main__":
    for each in VARIANTS:
        _write_variant(each, Path(sys.argv[1], each))
