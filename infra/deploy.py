"""Deploying the stack with the real CDK CLI, to AWS or to the embedded cloud.

`python -m infra.deploy [--target local] [-c key=value]`
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from infra.node import require_node
from infra.settings import LOCAL_IMAGE, STACK_NAME, Platform
from muster.contract.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent
CDK = ROOT / "node_modules" / ".bin" / "cdk"
_TAIL_LINES = 30


class DeployError(ConfigurationError):
    """The stack could not be deployed."""


def deploy(
    environment: Mapping[str, str],
    *,
    target: Platform,
    context: Mapping[str, str | int],
    outputs: Path,
    log: Path | None = None,
) -> dict[str, str]:
    """Bootstrap (the embedded cloud only), synthesize and deploy; the outputs of the stack, also written to `outputs`.

    Args:
        environment: of the processes started: credentials, region and endpoint come from here and nowhere else.
        target: the embedded cloud is bootstrapped on the way; an AWS account its owner has bootstrapped once
            (`npx cdk bootstrap`).
        context: the context keys of infra.settings but `target`.
        outputs: a JSON file; the cloud assembly is put beside it, into `cdk.out`.
        log: what the CDK CLI says goes to this file; None leaves it in the terminal.

    Raises:
        NodeMissingError: there is no node.
        DeployError: something is missing, `environment` points to the wrong cloud, or the CDK CLI failed.
    """
    _check_tools(environment)
    _check_endpoint(environment, target)
    outputs = outputs.absolute()
    outputs.parent.mkdir(parents=True, exist_ok=True)
    assembly = outputs.parent / "cdk.out"
    shutil.rmtree(assembly, ignore_errors=True)  # or the bundles of earlier deployments would pile up in it
    # Not from the root: the CLI would find cdk.json there and run the app before a bootstrap, too.
    runner = _Runner(outputs.parent, _cdk_environment(environment, target, assembly, context), log)
    # The two know nothing of each other, and together they take half as long.
    steps = [runner.start("app.py", [sys.executable, str(ROOT / "app.py")])]
    if target is Platform.LOCAL:
        place = f"aws://{_required(environment, 'CDK_DEFAULT_ACCOUNT')}/{_required(environment, 'AWS_REGION')}"
        steps.append(runner.start("cdk bootstrap", _cdk("bootstrap", place)))
    runner.finish(steps)
    # A change set shows what is about to happen; the embedded cloud is new every time.
    method = "direct" if target is Platform.LOCAL else "change-set"
    arguments = ("--app", str(assembly), "--outputs-file", str(outputs), "--method", method)
    command = _cdk("deploy", STACK_NAME, "--require-approval", "never", *arguments)
    runner.finish([runner.start("cdk deploy", command)])
    written: dict[str, dict[str, str]] = json.loads(outputs.read_text(encoding="utf-8"))
    return written[STACK_NAME]


@dataclass(frozen=True)
class _Step:
    name: str
    process: subprocess.Popen[bytes]


class _Runner:
    """Starts commands, all with one working directory, one environment and one log."""

    def __init__(self, folder: Path, environment: Mapping[str, str], log: Path | None) -> None:
        self._folder = folder
        self._environment = environment
        self._log = log
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.unlink(missing_ok=True)

    def start(self, name: str, command: Sequence[str]) -> _Step:
        if self._log is None:
            return _Step(name, subprocess.Popen(command, cwd=self._folder, env=self._environment))
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, cwd=self._folder, env=self._environment, stdout=log, stderr=log)
        return _Step(name, process)

    def finish(self, steps: Sequence[_Step]) -> None:
        """Wait for all; the first failure ends the others."""
        try:
            for step in steps:
                if step.process.wait() != 0:
                    raise DeployError(self._failure(step))
        finally:
            for step in steps:
                if step.process.poll() is None:
                    step.process.terminate()
                    step.process.wait()

    def _failure(self, step: _Step) -> str:
        said = f"`{step.name}` ended with exit code {step.process.returncode}"
        if self._log is None:
            return f"The stack was not deployed: {said}; what it said stands above."
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(f"  | {line}" for line in lines[-_TAIL_LINES:])
        return f"The stack was not deployed: {said}. The end of {self._log}:\n{tail}"


def _cdk(*arguments: str) -> list[str]:
    return [str(CDK), "--no-notices", "--no-version-reporting", "--no-color", "--ci", *arguments]


def _cdk_environment(
    environment: Mapping[str, str], target: Platform, assembly: Path, context: Mapping[str, str | int]
) -> dict[str, str]:
    """What the CLI would set for the app when it runs it itself, and what makes both quick and quiet."""
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    # The template's validation is most of a synthesis (3 of 4 s). The tests run it; before AWS it runs again.
    validation = {"CDK_VALIDATION": "false"} if target is Platform.LOCAL else {}
    return {
        **environment,
        **validation,
        "CDK_OUTDIR": str(assembly),
        "CDK_CONTEXT_JSON": json.dumps({**flags, **context, "target": target.value}),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_RUNTIME_PACKAGE_CACHE": "enabled",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    }


def _check_tools(environment: Mapping[str, str]) -> None:
    require_node(environment.get("PATH", os.defpath))
    if not CDK.exists():
        message = f"The CDK CLI is not installed ({CDK} is missing): run `make setup`."
        raise DeployError(message)


def _check_endpoint(environment: Mapping[str, str], target: Platform) -> None:
    """Neither may a local deployment reach a real account, nor one to AWS an emulator."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0, or 1 with what went wrong on standard error."""
    parser = argparse.ArgumentParser(prog="python -m infra.deploy", description="Deploy the Muster stack.")
    parser.add_argument("--target", type=Platform, choices=list(Platform), default=Platform.AWS)
    parser.add_argument(
        "-c",
        "--context",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of infra/settings.py, as replica_image, sweep_hours, notify_email, health_alarms, dashboard",
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
    # The CDK has just shown the stack's outputs.
    print("\nMuster is deployed. Write a spec with `muster init`, start it with `muster launch run.yaml --watch`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
