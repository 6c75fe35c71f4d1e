"""Deploying the stack with the CDK CLI, to AWS or to the embedded cloud."""

from __future__ import annotations

import ipaddress
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from muster.infra.deploy.cdk_tools import BUCKET_TEMPLATE, DeployError, cdk_command, cdk_environment, cdk_program
from muster.infra.deploy.command_runner import CommandRunner, Step, end
from muster.infra.settings.settings_file import SETTINGS_FILE
from muster.infra.settings.stack_settings import Platform, StackSettings
from muster.infra.settings.toml_text import toml_text


def deploy(
    environment: Mapping[str, str],
    *,
    target: Platform,
    settings: StackSettings,
    outputs: Path,
    log: Path | None = None,
    synthesis: Synthesis | None = None,
) -> dict[str, str]:
    """Bootstrap (the embedded cloud only), synthesize and deploy; the outputs of the stack, also written to `outputs`.

    Asks nothing and keeps nothing of a stack that is there: that is for `muster deploy`.

    Args:
        environment: of the processes that are started; credentials, region and endpoint come from here only.
        target: the embedded cloud is bootstrapped as part of the deployment.
        settings: all settings of the stack.
        outputs: a JSON file; the cloud assembly goes to `cdk.out` beside it, and the settings to `muster.toml`.
        log: a file for the output of the CDK CLI; None leaves it in the terminal.
        synthesis: one that was started with the same settings, outputs and log.

    Raises:
        NodeMissingError: there is no node.
        DeployError: something is missing, `environment` points to the wrong cloud, or the CDK CLI failed.
    """
    assembly = Assembly(environment, target=target, settings=settings, outputs=outputs, log=log, synthesis=synthesis)
    if target is Platform.LOCAL:
        account, region = _required(environment, "CDK_DEFAULT_ACCOUNT"), _required(environment, "AWS_REGION")
        assembly.write(bootstrap=f"aws://{account}/{region}")
    else:
        assembly.write()
    return assembly.deploy()


class Synthesis:
    """The CDK app at work for an embedded cloud that may still be starting: it calls no AWS.

    A context manager ends what still runs at the end of the block.

    Raises:
        NodeMissingError: there is no node.
        DeployError: the CDK CLI is missing.
    """

    def __init__(
        self, environment: Mapping[str, str], *, settings: StackSettings, outputs: Path, log: Path | None = None
    ) -> None:
        """Start it. The arguments are those of `deploy`."""
        cdk_program(environment)
        self.place = place = _Place.of(outputs, settings)
        cdk = cdk_environment(environment, Platform.LOCAL, place.assembly, place.settings)
        self.runner = CommandRunner(place.folder, cdk, log)
        self.step = place.synthesize(self.runner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end([self.step])


class _Place(NamedTuple):
    """The files of a deployment."""

    folder: Path
    assembly: Path
    settings: Path

    @classmethod
    def of(cls, outputs: Path, settings: StackSettings) -> _Place:
        """Beside the file of the outputs. Writes the settings."""
        folder = outputs.absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / SETTINGS_FILE
        file.write_text(toml_text(settings.tables), encoding="utf-8")
        return cls(folder, folder / "cdk.out", file)

    def synthesize(self, runner: CommandRunner) -> Step:
        """Start the CDK app."""
        shutil.rmtree(self.assembly, ignore_errors=True)  # it would accumulate the bundles of earlier deployments
        return runner.start("the CDK app", [sys.executable, "-m", "muster.infra.app"])


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
        synthesis: Synthesis | None = None,
    ) -> None:
        check_endpoint(environment, target)
        self._cli = cdk_program(environment)
        self._target = target
        self._settings = settings
        self._outputs = outputs.absolute()
        # The CDK app may be reading the settings at this time.
        self._place = _Place.of(outputs, settings) if synthesis is None else synthesis.place
        self._synthesis = synthesis
        # Not in a clone's root, where the CLI would find cdk.json and run the app before the bootstrap, too.
        cdk = cdk_environment(environment, target, self._place.assembly, self._place.settings)
        if synthesis is None:
            self._runner = CommandRunner(self._place.folder, cdk, log)
        else:
            self._runner = synthesis.runner.in_environment(cdk)

    def write(self, bootstrap: str | None = None) -> None:
        """Synthesize the stack. Side by side with it, bootstrap the environment `bootstrap` (aws://account/region).

        Raises:
            DeployError: a command failed.
        """
        begun = self._synthesis
        steps = [self._place.synthesize(self._runner) if begun is None else begun.step]
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
        return self._json(f"{self._settings.stack.name}.template.json")

    @property
    def bucket_template(self) -> dict[str, Any]:
        """What a bucket must have that the stack does not make (muster.infra.deploy.bucket_requirements)."""
        return self._json(BUCKET_TEMPLATE)

    def deploy(self) -> dict[str, str]:
        """Deploy what was written; the outputs of the stack.

        Raises:
            DeployError: the CDK CLI failed.
        """
        # A change set shows what will change; the embedded cloud is always new.
        method = "direct" if self._target is Platform.LOCAL else "change-set"
        arguments = ("--app", str(self._place.assembly), "--outputs-file", str(self._outputs), "--method", method)
        command = cdk_command(self._cli, "deploy", self._settings.stack.name, "--require-approval", "never", *arguments)
        self._runner.finish([self._runner.start("cdk deploy", command)])
        written: dict[str, dict[str, str]] = json.loads(self._outputs.read_text(encoding="utf-8"))
        return written[self._settings.stack.name]

    def _json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._place.assembly / name).read_text(encoding="utf-8"))
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
