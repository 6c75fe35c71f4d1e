"""`muster deploy`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import muster
from muster.client.aws.connection import open_session
from muster.client.cli.option_groups import Json, StackOptions, grouped
from muster.client.cli.output import busy, print_answer, print_lines, require_terminal
from muster.client.client_errors import UsageError
from muster.contract.aws.partitions import Locality
from muster.contract.errors import Problem, SettingsError
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.cdk_tools import DeployError, require_node
from muster.infra.deploy.deploy_answers import Deployment
from muster.infra.deploy.deployed_template import resource_changes
from muster.infra.deploy.deployment import Assembly, check_endpoint
from muster.infra.deploy.further_stacks import FurtherStacks, Home, further_stacks
from muster.infra.deploy.preflight import BucketCheck, Preflight, check_bucket
from muster.infra.deploy.settings_changes import SettingChange, setting_changes, shown, values, version_change
from muster.infra.deploy.template_limits import oversized
from muster.infra.settings.settings_file import SETTINGS_FILE, SettingsFile, parse_settings, settings_offers
from muster.infra.settings.stack_settings import DEFAULT_STACK, LOCAL_IMAGE, Platform, StackSettings

_RESOURCES_SHOWN = 20


@dataclass(frozen=True)
class TargetOptions(StackOptions):
    """The stack that a command deploys or deletes, and where it is."""

    target: Annotated[Platform, typer.Option("--target", help="Where the stack is.")] = Platform.AWS

    def environment(self) -> dict[str, str]:
        """This process's environment with the profile and the region of the options, for the CDK.

        Raises:
            DeployError: it leads to another cloud than the target.
        """
        chosen = {"AWS_PROFILE": self.profile, "AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region}
        found = {**os.environ, **{name: value for name, value in chosen.items() if value}}
        check_endpoint(found, self.target)
        return found


@grouped
def deploy(
    stack: TargetOptions,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help=f"Settings file; default: ./{SETTINGS_FILE}.")
    ] = None,
    *,
    diff: Annotated[bool, typer.Option("--diff", help="Show what would change, and change nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Deploy without asking, as is always done with --target local.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Deploy the stack as a settings file says. What the file leaves out has its default."""
    environment, target = stack.environment(), stack.target
    require_node(environment.get("PATH", os.defpath))
    file = SettingsFile.read(settings)
    tables = _with_name(file.tables, stack.stack)
    # By itself first: a mistake in the file needs no call to be found.
    own = parse_settings(tables, target, file.text, file.name)
    account = Account(open_session(stack.profile, stack.region or own.stack.region))
    with busy("reading the deployed stack"):
        place = account.place()
        deployed = account.stack(own.stack.name)
    environment |= {"AWS_REGION": place.region, "AWS_DEFAULT_REGION": place.region}
    if target is Platform.LOCAL:
        tables["replicas"] = {"image": LOCAL_IMAGE, **tables.get("replicas", {})}
        tables = {**_local_tables(environment), **tables}
    if own.places or tables.get("places"):
        # Each outpost names the stack to which it belongs.
        tables["stack"] = {"account": place.account, "region": place.region, **tables.get("stack", {})}
    new = parse_settings(tables, target, file.text, file.name)
    home = Home(account, place, deployed, new, environment, stack.profile)
    work = Work(account, place, deployed, new, as_json, further_stacks(home))
    if as_json and not (yes or diff):
        message = "--json asks nothing: add --yes to deploy, or --diff to see what would change"
        raise UsageError(message)
    work.check_place()
    log = work.folder / ("diff.log" if diff else "cdk.log")
    with call_folder(work.folder) as call:
        assembly = Assembly(environment, target=target, settings=new, outputs=call / "outputs.json", log=log)
        with busy("synthesizing the stack"):
            assembly.write()
        work.check_sums(assembly)
        bucket = work.check_bucket(assembly)
        changes = resource_changes({} if deployed is None else deployed.template, assembly.template)
        beside = {name: lines for one in work.further for name, lines in one.changes(assembly).items()}
        work.show(changes, bucket, beside)
        if diff:
            work.answer(changes, bucket, {}, beside)
            return
        if not (yes or target is Platform.LOCAL):
            _ask()
        with busy("preparing the account"):
            if not account.is_bootstrapped():
                assembly.bootstrap(f"aws://{place.account}/{place.region}")
            check_unchanged(new.stack.name, deployed, account.stack(new.stack.name))
        work.check_place()  # a run may have started since
        with busy("deploying; this takes some minutes on AWS"):
            outputs = work.deploy(assembly)
    work.answer(changes, bucket, outputs, beside)


def _local_tables(environment: Mapping[str, str]) -> dict[str, Any]:
    """What options know of the embedded cloud."""
    return {name: table for offer in settings_offers() for name, table in offer.local_tables(environment).items()}


@contextmanager
def call_folder(parent: Path) -> Iterator[Path]:
    """A folder for one call alone: it deploys what it has shown, whatever other calls do in the same place."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="call-") as name:
        yield Path(name)


def check_unchanged(name: str, read: DeployedStack | None, now: DeployedStack | None) -> None:
    """Check that the stack is as it was read: this deployment would undo a change by another without showing it.

    Raises:
        DeployError: another deployment has changed it.
    """
    if read != now:
        message = (
            f"Another deployment has changed the stack {name} since this one read it. Nothing was changed; run the "
            "command again to see what it would change now."
        )
        raise DeployError(message)


def _with_name(tables: Mapping[str, Mapping[str, object]], name: str | None) -> dict[str, Mapping[str, object]]:
    """The file's tables with the stack's name from the command line."""
    written = tables.get("stack", {})
    found = written.get("name", name) if isinstance(written, Mapping) else name
    if name is not None and found != name:
        message = f"the file names the stack {found}, --stack (or MUSTER_STACK) names {name}"
        raise UsageError(message)
    if name is None or not isinstance(written, Mapping):
        return dict(tables)
    return {**tables, "stack": {**written, "name": name}}


def _ask() -> None:
    require_terminal("add --yes to deploy, or --diff to see what would change")
    if not typer.confirm("Deploy this?", default=False):
        print_lines(["Nothing was changed."])
        raise typer.Exit(1)


@dataclass(frozen=True)
class Work:
    """One call of the command, from its settings to its answer."""

    account: Account
    place: Locality
    deployed: DeployedStack | None
    settings: StackSettings
    as_json: bool
    further: Sequence[FurtherStacks] = ()
    """Those of options beside the stack."""

    @property
    def folder(self) -> Path:
        """Where the files of the deployment lie."""
        place = f"{self.place.account}-{self.place.region}"
        return Path(".muster", "deploy", place, self.settings.stack.name).absolute()

    @property
    def changes(self) -> tuple[SettingChange, ...]:
        """The settings that change."""
        return setting_changes({} if self.deployed is None else self.deployed.settings, self.settings.tables)

    @property
    def _preflight(self) -> Preflight:
        return Preflight(self.account, self.place, self.settings, self.deployed)

    def check_place(self) -> None:
        """Refuse what cannot be deployed here, before the stack is synthesized."""
        with busy("checking the account"):
            problems = self._preflight.problems()
            if self.deployed is None:
                problems += self._preflight.missing_services()
            if not problems:
                problems += [problem for one in self.further for problem in one.problems()]
        self._refuse(problems)

    def check_sums(self, assembly: Assembly) -> None:
        """Refuse a template with a policy, an environment or an input that is larger than AWS allows."""
        self._refuse([problem for template in assembly.templates for problem in oversized(template)])

    def deploy(self, assembly: Assembly) -> dict[str, str]:
        """Deploy the stack, and those beside it: each names the stack's bucket; the outputs of the stack.

        Where the stack is there, it comes last: what it knows of the others is there by then.
        """
        before = None if self.deployed is None else self.deployed.outputs.get("BucketName")
        for one in self.further:
            for bucket in one.remove(delete_data=False):
                self._say([f"Stays: the bucket {bucket} with what replicas have written there"])
            if before is not None:
                one.deploy(assembly, before)
        outputs = assembly.deploy()
        if outputs["BucketName"] != before:
            for one in self.further:
                one.deploy(assembly, outputs["BucketName"])
        return outputs

    def check_bucket(self, assembly: Assembly) -> BucketCheck:
        """Refuse a bucket that lacks what the stack needs."""
        if self.settings.bucket.existing is None:
            return BucketCheck()
        with busy("checking the bucket"):
            check = check_bucket(
                self.account, self.place, self.settings, assembly.bucket_template, self.folder / "bucket"
            )
        self._refuse(check.problems)
        return check

    def _refuse(self, problems: Sequence[Problem]) -> None:
        if problems:
            name = f"The deployment of {self.settings.stack.name}"
            raise SettingsError(name, problems)

    def show(self, changes: Sequence[str], bucket: BucketCheck, beside: Mapping[str, Sequence[str]]) -> None:
        """What the deployment changes, in the stack and in those beside it."""
        self._say(self._lines(changes, bucket))
        self._say(f"Stack {name}: {_summary(lines)}" for name, lines in beside.items())
        self._say(f"WARNING: {line}" for one in self.further for line in one.warnings())

    def _say(self, lines: Iterable[str]) -> None:
        if not self.as_json:
            print_lines(lines)

    def _lines(self, changes: Sequence[str], bucket: BucketCheck) -> Iterator[str]:
        name, place = self.settings.stack.name, self.place
        verb = "New stack" if self.deployed is None else "Stack"
        yield f"{verb} {name} in {place.region}, account {place.account}."
        if self.deployed is not None:
            line = version_change(self.deployed.outputs.get("Version"), muster.__version__)
            yield from [] if line is None else [line]
        yield from self._setting_lines()
        if self.deployed is not None and (replacement := self._preflight.new_bucket) is not None:
            old = self.deployed.outputs["BucketName"]
            yield f"WARNING: the bucket {old} is replaced by {replacement}."
            yield "         The old bucket stays, and commands no longer find the runs in it."
        if (warning := self._preflight.warning()) is not None:
            yield f"WARNING: {warning}"
        yield f"Resources: {_summary(changes)}"
        if self.deployed is not None:  # of a new stack, all are created
            yield from (f"  {line}" for line in changes[:_RESOURCES_SHOWN])
            if len(changes) > _RESOURCES_SHOWN:
                yield f"  ... and {len(changes) - _RESOURCES_SHOWN} more"
        yield from (f"After the deployment, {command}" for command in bucket.later)

    def _setting_lines(self) -> Iterator[str]:
        """Every setting that differs from its default or from the deployed one, and how many have their defaults."""
        changed = {change.key: change for change in self.changes}
        defaults = dict(values(StackSettings()))
        unset = 0
        yield "Settings:"
        for key, value in values(self.settings):
            if key in changed:
                yield f"  {'+' if changed[key].deployed is None else '~'} {changed[key]}"
            elif value != defaults.get(key):
                yield f"    {key} = {shown(key, value)}"
            else:
                unset += 1
        gone = [change for key, change in changed.items() if key not in dict(values(self.settings))]
        yield from (f"  - {change}" for change in gone)
        yield f"    {unset} others have their defaults"

    def answer(
        self,
        changes: Sequence[str],
        bucket: BucketCheck,
        outputs: Mapping[str, str],
        beside: Mapping[str, Sequence[str]],
    ) -> None:
        """What the command prints at its end."""
        if self.as_json:
            print_answer(
                Deployment(
                    stack=self.settings.stack.name,
                    account=self.place.account,
                    region=self.place.region,
                    settings=self.changes,
                    resources=tuple(changes),
                    beside={name: tuple(lines) for name, lines in beside.items()},
                    commands=tuple(bucket.later),
                    deployed=bool(outputs),
                    outputs=dict(outputs),
                )
            )
        elif outputs:
            print_lines(self._outcome(outputs, bucket))

    def _outcome(self, outputs: Mapping[str, str], bucket: BucketCheck) -> Iterator[str]:
        name = self.settings.stack.name
        yield ""
        yield f"{name} is deployed. Its bucket is {outputs['BucketName']}."
        if "DashboardUrl" in outputs:
            yield f"Dashboard: {outputs['DashboardUrl']}"
        if any(change.key == "notify.email" and change.new is not None for change in self.changes):
            yield f"A mail to {self.settings.notify.email} asks to confirm the subscription."
        yield from (f"Still to do: {command}" for command in bucket.later)
        if name != DEFAULT_STACK:
            yield f"Select the stack with --stack {name}, or for this shell with: export MUSTER_STACK={name}"
        yield "Write a spec with `muster init`, start it with `muster launch run.yaml --watch`."


def _summary(changes: Sequence[str]) -> str:
    counts = {word: sum(line.startswith(mark) for line in changes) for mark, word in _MARKS.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no change"


_MARKS = {"+": "to create", "~": "to change", "-": "to delete"}
