"""The CDK on this machine: its CLI, the node that it needs, and the environment in which both run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from muster.contract.errors import ConfigurationError
from muster.infra.settings.stack_settings import Platform

ROOT = Path(__file__).resolve().parents[2]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
BUCKET_TEMPLATE = "bucket.json"
"""The file of the cloud assembly that says what a bucket must have that the stack does not make."""
JSII_ENVIRONMENT = {
    "JSII_RUNTIME_PACKAGE_CACHE": "enabled",  # without it every start unpacks the CDK for 3 s
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
}


class DeployError(ConfigurationError):
    """The stack could not be deployed."""


class NodeMissingError(ConfigurationError):
    """There is no node on the PATH."""

    def __init__(self) -> None:
        super().__init__("Node.js is not on the PATH and the CDK needs it: install node 20 or newer from nodejs.org.")


def require_node(path: str | None = None) -> None:
    """Check that node is on `path` (None: this process's PATH); without it jsii would fail with a traceback.

    Raises:
        NodeMissingError: it is not there.
    """
    if shutil.which("node", path=path) is None:
        raise NodeMissingError


def require_cdk(environment: Mapping[str, str]) -> None:
    """Check that node and the CDK CLI are installed.

    Raises:
        NodeMissingError: there is no node.
        DeployError: the CDK CLI is not installed.
    """
    require_node(environment.get("PATH", os.defpath))
    if not CDK.exists():
        message = f"The CDK CLI is not installed ({CDK} is missing): run `make setup`."
        raise DeployError(message)


def cdk_command(*arguments: str) -> list[str]:
    """The command line of the CDK CLI."""
    return [str(CDK), "--no-notices", "--no-version-reporting", "--no-color", "--ci", *arguments]


def cdk_environment(environment: Mapping[str, str], target: Platform, assembly: Path, settings: Path) -> dict[str, str]:
    """The environment for app.py and the CLI: what the CLI sets when it runs the app itself, and no telemetry."""
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    # Validating the template takes 3 of the 4 s of a synthesis. The tests do it; so does every deployment to AWS.
    validation = {"CDK_VALIDATION": "false"} if target is Platform.LOCAL else {}
    return {
        **environment,
        **validation,
        **JSII_ENVIRONMENT,
        "CDK_OUTDIR": str(assembly),
        "CDK_CONTEXT_JSON": json.dumps({**flags, "settings": str(settings), "target": target.value}),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
    }
