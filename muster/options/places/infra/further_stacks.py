"""The outposts of a stack at a deployment: what stands against each, what changes, and their end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from muster.client.aws.error_translation import translated
from muster.client.client_errors import CredentialsError, DeniedError, RefusedError, UnreachableError
from muster.contract.aws.partitions import Locality
from muster.contract.errors import Problem, StatedProblem
from muster.contract.names import run_name
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.deployed_template import resource_changes
from muster.infra.deploy.deployment import Assembly
from muster.infra.deploy.destruction import Destruction
from muster.infra.deploy.further_stacks import FurtherOffer, Home
from muster.infra.settings.stack_settings import OTHER_PARTITIONS, PlaceTable, StackSettings
from muster.options.places.client.place_session import PlaceSession, local_places
from muster.options.places.contract.outposts import HOME_BUCKET, Outpost, Place, home_arn, outpost, outpost_stack

_VALUABLE = ("output/", "checkpoints/")
"""What only the bucket of a place has: of everything else there is more at home."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_RUNS_SHOWN = 3


@dataclass(frozen=True)
class PlaceStack:
    """The outpost of one place. `account` is where the credentials for it lead."""

    name: str
    stack: str
    outpost: Outpost
    account: Account
    home: str
    """The stack to which it belongs (`home_arn`)."""
    variables: Mapping[str, str | None]
    """What differs in the environment of a process that deploys there; None: it is unset."""
    profile: str | None = None
    """With which `account` was opened, if one is named."""

    @property
    def field(self) -> str:
        """The settings' table of the place."""
        return f"places.{self.name}"

    @property
    def place(self) -> Locality:
        """Where it is."""
        return Locality.of_arn(f"arn:aws:s3:{self.outpost.region}:{self.outpost.account}:")

    @cached_property
    def deployed(self) -> DeployedStack | None:
        """It, as it is deployed."""
        return self.account.stack(self.stack)

    @cached_property
    def lost(self) -> str | None:
        """Why nothing can be asked there: its account, its region or the profile is gone, perhaps. None: it answers."""
        try:
            self.account.place()
        except (CredentialsError, DeniedError, RefusedError, UnreachableError) as error:
            why = str(error.__cause__ or error).rstrip(".")
            profile = "" if self.profile is None else f", with the profile {self.profile}"
            return f"account {self.outpost.account} cannot be asked in {self.outpost.region}{profile}: {why}"
        return None

    def unreached(self) -> Iterator[Problem]:
        """Where its account cannot be asked."""
        if self.lost is not None:
            remedy = "log in, name another profile, or let this network reach it; if it is gone, remove its table"
            yield StatedProblem(self.field, self.lost, remedy)

    def farewell(self) -> Iterator[str]:
        """Where it cannot be deleted, what is to be done later."""
        if self.lost is not None:
            region, bucket = self.outpost.region, self.outpost.bucket
            yield (
                f"the stack {self.stack} of the place {self.name} stays, because {self.lost}. Once that is possible, "
                f"delete it: aws cloudformation delete-stack --stack-name {self.stack} --region {region}; then its "
                f"bucket: aws s3 rb s3://{bucket} --force --region {region}"
            )

    def misled(self) -> Iterator[Problem]:
        """Where the credentials lead elsewhere."""
        found, wanted = self.account.place(), self.place
        if found.account != wanted.account:
            said = f"the place is in account {wanted.account}, the credentials lead to {found.account}"
            yield StatedProblem(f"{self.field}.profile", said, "name a profile for that account")

    def problems(self, prefixes: set[str]) -> Iterator[Problem]:
        """What forbids to deploy it: `prefixes` are the job prefixes of the stack that is deployed, and of the next."""
        if not self.account.answers("sagemaker", lambda client: client.list_training_jobs(MaxResults=1)):
            said = f"Amazon SageMaker does not answer in {self.outpost.region}"
            yield StatedProblem(f"{self.field}.region", said, "choose another region, or let this network reach it")
            return
        if self.deployed is not None:
            yield from self._foreign(self.deployed.outputs, prefixes)
        elif self.account.bucket(self.outpost.bucket, self.place) is not None:
            bucket, region = self.outpost.bucket, self.outpost.region
            said = f"the bucket {bucket} of an outpost before this one is still there"
            remedy = f"copy what you need of it, then: aws s3 rb s3://{bucket} --force --region {region}"
            yield StatedProblem(self.field, said, remedy)
        for name, prefix in sorted(self.account.job_prefixes().items()):
            if name != self.stack and prefix.lower() in {one.lower() for one in prefixes}:
                said = f"the stack {name} there has the job prefix {prefix}, too"
                yield StatedProblem(self.field, said, "choose another stack.job_prefix, or another place")

    def _foreign(self, outputs: Mapping[str, str], prefixes: set[str]) -> Iterator[Problem]:
        """Where the stack of that name is another's."""
        there = f"the stack {self.stack} in {self.outpost.region}"
        if "Home" not in outputs or outputs.get("Place") != self.name:
            yield StatedProblem(self.field, f"{there} is no outpost of this place", "choose another name for the place")
        elif outputs["Home"] != self.home:
            said = f"{there} is an outpost of {_words(outputs['Home'])}"
            yield StatedProblem(self.field, said, "choose another name for the place")
        elif outputs.get("JobPrefix") not in prefixes:
            said = f"{there} has the job prefix {outputs.get('JobPrefix')}, and takes jobs with no other"
            yield StatedProblem(self.field, said, f"delete it first: cdk destroy {self.stack}")

    def protected(self) -> Iterator[Problem]:
        """Why CloudFormation would refuse to delete it."""
        if self.deployed is not None and self.deployed.is_protected:
            said = f"the termination protection of the stack {self.stack} in {self.outpost.region} is on"
            yield StatedProblem(self.field, said, "turn it off, or keep the place")

    def changes(self, assembly: Assembly) -> list[str]:
        """What its deployment changes."""
        before = {} if self.deployed is None else self.deployed.template
        return resource_changes(before, assembly.template_of(self.stack))

    def delete(self, *, delete_data: bool) -> str | None:
        """Delete it; the name of its bucket where that stays. It stays where only it has something, or nothing can be
        asked."""
        if self.lost is not None:
            return self.outpost.bucket
        if self.deployed is None or self.deployed.outputs.get("Home") != self.home:
            return None  # another stack may have taken the name
        work = Destruction(self.account, self.deployed, self.place)
        work.delete_stack()
        if not delete_data and self._is_worth_keeping():
            return self.outpost.bucket
        work.delete_bucket()
        return None

    def _is_worth_keeping(self) -> bool:
        client = self.account.client("s3")
        with translated():
            return any(
                client.list_objects_v2(Bucket=self.outpost.bucket, Prefix=prefix, MaxKeys=1).get("Contents")
                for prefix in _VALUABLE
            )


class _NoAccount(Account):
    """An account to which no session leads: there is no such profile."""

    def __init__(self, error: CredentialsError) -> None:
        self._error = error

    def place(self) -> Locality:
        raise self._error


class PlaceStacks:
    """The outposts beside one stack: those of the next settings, and those that only the deployed ones have."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def _stacks(self, settings: StackSettings) -> dict[str, PlaceStack]:
        return {name: self._stack(settings, name, table) for name, table in sorted(settings.places.items())}

    def _stack(self, settings: StackSettings, name: str, table: PlaceTable) -> PlaceStack:
        local = local_places(self._home.environment).get(name)
        stack, account = settings.stack.name, table.account or self._home.place.account
        place = Place(name=name, region=table.region, account=account)
        one = outpost(stack, settings.job_prefix, self._home.place.partition, place)
        variables: dict[str, str | None] = {"AWS_REGION": table.region, "AWS_DEFAULT_REGION": table.region}
        if table.profile is not None:
            variables |= {"AWS_PROFILE": table.profile, **dict.fromkeys(_CREDENTIALS)}
        if local is not None:
            variables |= local.variables
        profile = table.profile or self._home.profile
        try:
            opened = Account(PlaceSession(profile, table.region, local))
        except CredentialsError as error:
            opened = _NoAccount(error)
        home = home_arn(self._home.place, stack)
        return PlaceStack(name, outpost_stack(stack, name), one, opened, home, variables, profile)

    @cached_property
    def wanted(self) -> dict[str, PlaceStack]:
        """Those of the next settings."""
        return self._stacks(self._home.settings)

    @cached_property
    def unwanted(self) -> list[PlaceStack]:
        """Those that are deployed, and that the next settings lack or have elsewhere."""
        deployed = self._home.deployed
        if deployed is None or not deployed.settings.get("places"):
            return []
        tables = {"places": deployed.settings["places"], "stack": deployed.settings.get("stack", {})}
        before = StackSettings.model_validate(tables)
        before = before.model_copy(update={"stack": before.stack.model_copy(update={"name": deployed.name})})
        after = {(one.name, one.place) for one in self.wanted.values()}
        return [one for one in self._stacks(before).values() if (one.name, one.place) not in after]

    def problems(self) -> Iterator[Problem]:
        """What forbids to deploy the outposts, or to delete those that are not wanted."""
        home, outputs = self._home, {} if self._home.deployed is None else self._home.deployed.outputs
        if self.wanted and home.place.region.startswith(OTHER_PARTITIONS):
            said = f"the stack is in {home.place.region}, whose partition shares no events and roles with others"
            yield StatedProblem("places", said, "leave [places] out")
            return
        prefixes = {home.settings.job_prefix, outputs.get("JobPrefix", home.settings.job_prefix)}
        for one in self.wanted.values():
            yield from [*one.unreached()] or [*one.misled()] or one.problems(prefixes)
        for one in self.unwanted:
            # To one that cannot be asked `warnings` is the answer.
            yield from [*one.misled(), *one.protected()] if one.lost is None else ()
            if users := self._users(one, outputs):
                shown = ", ".join(users[:_RUNS_SHOWN]) + (" and others" if len(users) > _RUNS_SHOWN else "")
                remedy = "wait until they end, or cancel them with `muster cancel RUN`"
                yield StatedProblem(one.field, f"it would be removed while it is used by {shown}", remedy)

    def _users(self, one: PlaceStack, outputs: Mapping[str, str]) -> list[str]:
        """The runs that have not ended and name the place, and the jobs of others there, if it can be asked."""
        machine = outputs.get("StateMachineArn")
        runs = [] if machine is None else self._home.account.running_runs(machine)
        using = [run for run in runs if machine is not None and self._names(machine, run, one.name)]
        prefix = outputs.get("JobPrefix", self._home.settings.job_prefix)
        jobs = one.account.active_jobs(prefix) if one.lost is None else ()
        named = {run_name(run) for run in using}
        return [*using, *sorted(str(job.name) for job in jobs if job.name.run not in named)]

    def _names(self, machine: str, run: str, place: str) -> bool:
        """Whether a run names the place. The jobs of one that another run has started show it, too."""
        return f'"{place}"' in json.dumps(self._home.account.run_input(machine, run).get("places"))

    def warnings(self) -> Iterator[str]:
        """What stays of the outposts that are not wanted, because it cannot be deleted now."""
        for one in self.unwanted:
            yield from one.farewell()

    def changes(self, assembly: Assembly) -> Mapping[str, list[str]]:
        """What a deployment would change in each outpost."""
        gone = {one.stack: one for one in self.unwanted if one.lost is None and one.deployed is not None}
        removed = {name: resource_changes(one.deployed.template, {}) for name, one in gone.items() if one.deployed}
        return {**removed, **{one.stack: one.changes(assembly) for one in self.wanted.values()}}

    def deploy(self, assembly: Assembly, bucket: str) -> None:
        """Deploy all outposts, side by side."""
        assembly.deploy_beside({one.stack: one.variables for one in self.wanted.values()}, {HOME_BUCKET: bucket})

    def remove(self, *, delete_data: bool) -> list[str]:
        """Delete the outposts that are not wanted; the names of the buckets that stay."""
        kept = [one.delete(delete_data=delete_data) for one in self.unwanted]
        return [bucket for bucket in kept if bucket is not None]


def _words(arn: str) -> str:
    """The stack in which an ARN of `home_arn` leads."""
    place = Locality.of_arn(arn)
    return f"the stack {arn.rpartition('/')[2]} in {place.region}, account {place.account}"


OFFER = FurtherOffer(PlaceStacks)
