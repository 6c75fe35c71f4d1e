"""Deploying the stack with the CDK CLI, to AWS or to the embedded cloud."""

from __future__ import annotations

import ipaddress
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from muster.infra.deploy.cdk_tools import (
    ASSEMBLY,
    BUCKET_TEMPLATE,
    DeployError,
    cdk_command,
    cdk_environment,
    cdk_program,
)
from muster.infra.deploy.command_runner import CommandRunner, Step
from muster.infra.settings.stack_settings import Platform, StackSettings


def deploy(
    environment: Mapping[str, str],
    *,
    target: Platform,
    settings: StackSettings,
    outputs: Path,
    log: Path | None = None,
) -> dict[str, str]:
    """Bootstrap (the embedded cloud only), synthesize and deploy; the outputs of the stack, also written to `outputs`.

    Asks nothing and keeps nothing of a stack that is there: that is for `muster deploy`.

    Args:
        environment: of the processes that are started; credentials, region and endpoint come from here only.
        target: the embedded cloud is bootstrapped as part of the deployment.
        settings: all settings of the stack.
        outputs: a JSON file; the cloud assembly and the settings go beside it.
        log: a file for the output of the CDK CLI; None leaves it in the terminal.

    Raises:
        NodeMissingError: there is no node.
        DeployError: something is missing, `environment` points to the wrong cloud, or the CDK CLI failed.
    """
    assembly = Assembly(environment, target=target, settings=settings, outputs=outputs, log=log)
    if target is Platform.LOCAL:
        account, region = _required(environment, "CDK_DEFAULT_ACCOUNT"), _required(environment, "AWS_REGION")
        assembly.write(bootstrap=f"aws://{account}/{region}")
    else:
        assembly.write()
    return assembly.deploy()


class Assembly:
    """The stack as the CDK deploys it: written once, looked at, and deployed as it was written.

    Takes the arguments of `deploy`.

    Raises:
        NodeMissingError: there is no node.
        DeployError: the CDK CLI is missing, or `environment` points to the wrong cloud.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        target: Platform,
        settings: StackSettings,
        outputs: Path,
        log: Path | None = None,
    ) -> None:
        check_endpoint(environment, target)
        self._cli = cdk_program(environment)
        self._target = target
        self._stack = settings.stack.name
        self._outputs = outputs.absolute()
        # Not in a clone's root, where the CLI would find cdk.json and run the app before the bootstrap, too.
        folder = self._outputs.parent
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder / ASSEMBLY
        self._runner = CommandRunner(folder, cdk_environment(environment, target, folder, settings), log)

    def write(self, bootstrap: str | None = None) -> None:
        """Synthesize the stack. Side by side with it, bootstrap the environment `bootstrap` (aws://account/region).

        Raises:
            DeployError: a command failed.
        """
        shutil.rmtree(self._folder, ignore_errors=True)  # it would accumulate the bundles of earlier deployments
        steps = [self._runner.start("the CDK app", [sys.executable, "-m", "muster.infra.app"])]
        if bootstrap is not None:
            steps.append(self._start_bootstrap(bootstrap))
        self._runner.finish(steps)

    def bootstrap(self, place: str) -> None:
        """Bootstrap the environment `place` (aws://account/region).

        Raises:
            DeployError: the command failed.
        """
        self._runner.finish([self._start_bootstrap(place)])

    def _start_bootstrap(self, place: str) -> Step:
        return self._runner.start("cdk bootstrap", cdk_command(self._cli, "bootstrap", place))

    @property
    def template(self) -> dict[str, Any]:
        """The stack's template."""
        return self.template_of(self._stack)

    @property
    def templates(self) -> list[dict[str, Any]]:
        """The templates of all stacks of the app."""
        return [self._json(path.name) for path in sorted(self._folder.glob("*.template.json"))]

    def template_of(self, stack: str) -> dict[str, Any]:
        """The template of a stack of the app."""
        return self._json(f"{stack}.template.json")

    @property
    def bucket_template(self) -> dict[str, Any]:
        """What a bucket must have that the stack does not make (muster.infra.deploy.bucket_requirements)."""
        return self._json(BUCKET_TEMPLATE)

    def deploy(self) -> dict[str, str]:
        """Deploy what was written; the outputs of the stack.

        Raises:
            DeployError: the CDK CLI failed.
        """
        command = self._deploy_command(self._stack, "--outputs-file", str(self._outputs))
        self._runner.finish([self._runner.start("cdk deploy", command)])
        written: dict[str, dict[str, str]] = json.loads(self._outputs.read_text(encoding="utf-8"))
        return written[self._stack]

    def deploy_beside(self, stacks: Mapping[str, Mapping[str, str | None]], parameters: Mapping[str, str]) -> None:
        """Deploy other stacks of the app side by side, each with these variables, of which None is left out.

        Raises:
            DeployError: the CDK CLI failed.
        """
        given = [word for item in parameters.items() for word in ("--parameters", "=".join(item))]
        self._runner.finish(
            [
                self._runner.start(f"cdk deploy {stack}", self._deploy_command(stack, *given), variables)
                for stack, variables in stacks.items()
            ]
        )

    def _deploy_command(self, stack: str, *arguments: str) -> list[str]:
        # A change set shows what will change; the embedded cloud is always new.
        method = "direct" if self._target is Platform.LOCAL else "change-set"
        how = ("--app", str(self._folder), "--method", method, "--require-approval", "never")
        return cdk_command(self._cli, "deploy", stack, *how, *arguments)

    def _json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / name).read_text(encoding="utf-8"))
        return found


def check_endpoint(environment: Mapping[str, str], target: Platform) -> None:
    """A local deployment must not reach a real account, nor a deployment to AWS an emulator.

    Raises:
        DeployError: it would.
    """
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
