"""The CDK on this machine: its CLI, the node that it needs, and the environment in which both run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import muster
from muster.contract.errors import ConfigurationError
from muster.infra.build_places import CLONE, PACKAGE, cache_folder
from muster.infra.settings.stack_settings import Platform, StackSettings

NODE_MAJOR_MIN = 20  # the oldest that the CDK supports
PUBLISHED = "published"
"""The key of the app's context that asks for a template without the CDK's own bucket."""
ASSETS_PREFIX = f"muster/{muster.__version__}/"
"""Where the files of such a template lie in their bucket, by default."""
ASSEMBLY = "cdk.out"
"""The folder of a cloud assembly."""
BUCKET_TEMPLATE = "bucket.json"
"""The file of the cloud assembly that says what a bucket must have that the stack does not make."""
JSII_ENVIRONMENT = {
    "JSII_RUNTIME_PACKAGE_CACHE": "enabled",  # without it every start unpacks the CDK for 3 s
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": str(NODE_MAJOR_MIN),
}
_PINS = PACKAGE / "infra" / "deploy" / "cdk_cli"
"""package.json and package-lock.json, which pin the CDK CLI."""
_REMEDY = f"install node {NODE_MAJOR_MIN} or newer from nodejs.org."


class DeployError(ConfigurationError):
    """The stack could not be deployed."""


class NodeMissingError(ConfigurationError):
    """There is no node on the PATH, or an old one."""

    def __init__(self, found: str | None = None) -> None:
        reason = (
            "Node.js is not on the PATH and the CDK needs it"
            if found is None
            else f"The CDK needs node {NODE_MAJOR_MIN} or newer, and the node on the PATH is {found}"
        )
        super().__init__(f"{reason}: {_REMEDY}")


def require_node(path: str | None = None) -> None:
    """Check that a node is on `path` (None: this process's PATH) that the CDK can use; else jsii shows a traceback.

    Raises:
        NodeMissingError: it is not there, does not start or is too old.
    """
    program = shutil.which("node", path=path)
    if program is None:
        raise NodeMissingError
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = re.fullmatch(r"v(\d+)\..*", asked.stdout.strip())
    if version is None or int(version[1]) < NODE_MAJOR_MIN:
        raise NodeMissingError(asked.stdout.strip() or f"{program}, which does not start")


def cdk_program(environment: Mapping[str, str]) -> Path:
    """The CDK CLI: the clone's, or one in the user's cache, where the first call installs it.

    Raises:
        NodeMissingError: there is no node, or an old one.
        DeployError: a part is not installed, or npm could not install the CLI.
    """
    require_node(environment.get("PATH", os.defpath))
    if CLONE is not None:
        folder = CLONE
        if not _cli(folder).exists():
            message = f"The CDK CLI is not installed ({_cli(folder)} is missing): run `make setup`."
            raise DeployError(message)
    else:
        lock = (_PINS / "package-lock.json").read_bytes()
        folder = cache_folder() / "cdk-cli" / hashlib.sha256(lock).hexdigest()[:16]
        if not _cli(folder).exists():
            _install_cli(folder, environment)
    return _cli(folder)


def _cli(folder: Path) -> Path:
    return folder / "node_modules" / ".bin" / "cdk"


def _install_cli(folder: Path, environment: Mapping[str, str]) -> None:
    """Install what the lock pins into a folder beside `folder`, then move it there: a failure leaves nothing."""
    npm = shutil.which("npm", path=environment.get("PATH", os.defpath))
    if npm is None:
        message = f"npm is not on the PATH. It installs the CDK CLI once, and comes with node: {_REMEDY}"
        raise DeployError(message)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as staging:
        made = Path(staging) / "cli"
        shutil.copytree(_PINS, made)
        command = [npm, "ci", "--omit=dev", "--no-fund", "--no-audit", "--loglevel=error", "--prefer-offline"]
        # npm's own settings (registry, certificates, proxy) hold; the endpoint of an emulator is none of them.
        outcome = subprocess.run(command, cwd=made, env=dict(environment), capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            reason = " ".join(outcome.stderr.split()[-60:]) or f"exit code {outcome.returncode}"
            message = f"npm cannot install the CDK CLI into {folder}: {reason}"
            raise DeployError(message)
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster, with the same result.
            if not _cli(folder).exists():
                raise


def cdk_command(program: Path, *arguments: str) -> list[str]:
    """A command line of the CDK CLI."""
    return [str(program), "--no-notices", "--no-version-reporting", "--no-color", "--ci", *arguments]


def cdk_environment(
    environment: Mapping[str, str], target: Platform, folder: Path, settings: StackSettings, *, published: bool = False
) -> dict[str, str]:
    """The environment for the CDK app and the CLI: what the CLI sets when it runs the app itself, and no telemetry.

    Args:
        environment: what both get besides.
        target: where the stack is deployed.
        folder: for the settings, which are written here, and for the assembly, which the app writes.
        settings: all settings of the stack.
        published: whether the template is one for CloudFormation alone (muster.infra.stack).
    """
    file = folder / "settings.json"
    file.write_text(json.dumps(settings.tables), encoding="utf-8")
    # Validating the template takes 3 of the 4 s of a synthesis. The tests do it; so does every deployment to AWS.
    validation = {"CDK_VALIDATION": "false"} if target is Platform.LOCAL else {}
    return {
        **environment,
        **validation,
        **JSII_ENVIRONMENT,
        "CDK_OUTDIR": str(folder / ASSEMBLY),
        "CDK_CONTEXT_JSON": json.dumps({"settings": str(file), "target": target.value, PUBLISHED: published}),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
    }
