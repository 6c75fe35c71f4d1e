"""Deploying the stack with the CDK CLI, to AWS or to the embedded cloud."""

from __future__ import annotations

import ipaddress
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from infra.deploy.cdk_tools import ROOT, DeployError, cdk_command, cdk_environment, require_cdk
from infra.deploy.command_runner import CommandRunner
from infra.settings.settings_file import SETTINGS_FILE
from infra.settings.stack_settings import Platform, StackSettings
from infra.settings.toml_text import toml_text


def deploy(
    environment: Mapping[str, str],
    *,
    target: Platform,
    settings: StackSettings,
    outputs: Path,
    log: Path | None = None,
) -> dict[str, str]:
    """Bootstrap (the embedded cloud only), synthesize and deploy; the outputs of the stack, also written to `outputs`.

    Args:
        environment: of the processes that are started; credentials, region and endpoint come from here only.
        target: the embedded cloud is bootstrapped as part of the deployment; an AWS account must have been bootstrapped
            once (`npx cdk bootstrap`).
        settings: all settings of the stack.
        outputs: a JSON file; the cloud assembly goes to `cdk.out` beside it, and the settings to `muster.toml`.
        log: a file for the output of the CDK CLI; None leaves it in the terminal.

    Raises:
        NodeMissingError: there is no node.
        DeployError: something is missing, `environment` points to the wrong cloud, or the CDK CLI failed.
    """
    require_cdk(environment)
    _check_endpoint(environment, target)
    outputs = outputs.absolute()
    outputs.parent.mkdir(parents=True, exist_ok=True)
    assembly = outputs.parent / "cdk.out"
    shutil.rmtree(assembly, ignore_errors=True)  # it would accumulate the bundles of earlier deployments
    # Not in the root, where the CLI would find cdk.json and run the app before the bootstrap, too.
    file = outputs.parent / SETTINGS_FILE
    file.write_text(toml_text(settings.tables), encoding="utf-8")
    runner = CommandRunner(outputs.parent, cdk_environment(environment, target, assembly, file), log)
    # Synthesis and bootstrap are independent: side by side they take half as long.
    steps = [runner.start("app.py", [sys.executable, str(ROOT / "app.py")])]
    if target is Platform.LOCAL:
        place = f"aws://{_required(environment, 'CDK_DEFAULT_ACCOUNT')}/{_required(environment, 'AWS_REGION')}"
        steps.append(runner.start("cdk bootstrap", cdk_command("bootstrap", place)))
    runner.finish(steps)
    # A change set shows what will change; the embedded cloud is always new.
    method = "direct" if target is Platform.LOCAL else "change-set"
    arguments = ("--app", str(assembly), "--outputs-file", str(outputs), "--method", method)
    command = cdk_command("deploy", settings.stack.name, "--require-approval", "never", *arguments)
    runner.finish([runner.start("cdk deploy", command)])
    written: dict[str, dict[str, str]] = json.loads(outputs.read_text(encoding="utf-8"))
    return written[settings.stack.name]


def _check_endpoint(environment: Mapping[str, str], target: Platform) -> None:
    """A local deployment must not reach a real account, nor a deployment to AWS an emulator."""
    endpoints = {name: url for name, url in environment.items() if name.startswith("AWS_ENDPOINT_URL") and url}
    if target is Platform.AWS:
        for name, url in endpoints.items():
            message = f"{name} is {url}; unset it to deploy to AWS, or deploy with --target local."
            raise DeployError(message)
        return
    remedy = 'run `muster local up` and eval "$(muster local env)".'
    if "AWS_ENDPOINT_URL" not in endpoints:
        message = f"AWS_ENDPOINT_URL is not set; it must be the embedded cloud's: {remedy}"
        raise DeployError(message)
    for name, url in endpoints.items():
        if not _is_loopback(url):
            message = f"{name} is {url}; it must be the embedded cloud's: {remedy}"
            raise DeployError(message)


def _is_loopback(url: str) -> bool:
    name = urlsplit(url).hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _required(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        message = f'{name} is not set: eval "$(muster local env)" sets it for the embedded cloud.'
        raise DeployError(message)
    return environment[name]
