"""What would make a deployment fail, found before it begins, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.client.aws.s3_route import nat_warning
from muster.client.client_errors import ClientError, DeniedError
from muster.contract.aws.partitions import Locality
from muster.contract.errors import PastedProblem, Problem, StatedProblem
from muster.contract.names import run_name
from muster.contract.spec.foreign_resources import foreign_resources
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.bucket_requirements import Requirements
from muster.infra.deploy.deployed_template import new_bucket
from muster.infra.deploy.key_policy import missing_statements, role_trust, statement_is_held
from muster.infra.deploy.settings_changes import pinned_changes, shown, stack_key_change
from muster.infra.settings.settings_file import own_data_problems, settings_offers
from muster.infra.settings.stack_settings import StackSettings, snap_start_problems

# The services that the fewest regions have; a read-only call of each, and its name in a sentence.
_PROBES: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
    ("sagemaker", "Amazon SageMaker", lambda client: client.list_training_jobs(MaxResults=1)),
    ("scheduler", "Amazon EventBridge Scheduler", lambda client: client.list_schedules(MaxResults=1)),
    ("stepfunctions", "AWS Step Functions", lambda client: client.list_state_machines(maxResults=1)),
)


@dataclass(frozen=True)
class Preflight:
    """One deployment before it begins. `deployed` is the stack that is there, if any."""

    account: Account
    place: Locality
    settings: StackSettings
    deployed: DeployedStack | None

    def problems(self) -> list[Problem]:
        """Everything that forbids the deployment, except what `check_bucket` finds."""
        found = [*self._place_problems()]
        if found:  # it is the wrong place: what else is found there says nothing
            return found
        return [
            *self._prefix_problems(),
            *self._bucket_name(),
            *self._own_data(),
            *self._running(),
            *self._former_key(),
            *self._key(),
            *self._roles(),
            *self._access_logs(),
            *(problem for offer in settings_offers() for problem in offer.preflight(self.account, self.settings)),
        ]

    def missing_services(self) -> Iterator[Problem]:
        """Services that the region lacks."""
        for service, name, call in _PROBES:
            if not self.account.answers(service, call):
                statement = f"{name} does not answer in {self.place.region}"
                remedy = "deploy to a region that has this service, or let this network reach it"
                yield StatedProblem("stack.region", statement, remedy)

    def warning(self) -> str | None:
        """What the deployment costs beside what it must: its replicas' way to S3."""
        vpc = self.settings.replicas.vpc
        if vpc is None:
            return None
        try:
            return nat_warning(vpc.subnets, self.account.routes(vpc.subnets[0], self.place.region))
        except ClientError:
            return None  # a caller that may not ask EC2 has docs/costs.md

    def _place_problems(self) -> Iterator[Problem]:
        for key, found in (("account", self.place.account), ("region", self.place.region)):
            wanted = getattr(self.settings.stack, key)
            if wanted is not None and wanted != found:
                remedy = f"select it with --profile{' or --region' if key == 'region' else ''}, or correct the file"
                yield StatedProblem(f"stack.{key}", f"the file says {wanted}, the credentials lead to {found}", remedy)
        if self.settings.stack.region is None:  # otherwise the settings file has been refused
            yield from snap_start_problems(self.settings, self.place.region)
        yield from foreign_resources(self.settings.tables, self.place)

    def _prefix_problems(self) -> Iterator[Problem]:
        wanted = self.settings.job_prefix
        for name, prefix in sorted(self.account.job_prefixes().items()):
            # SageMaker writes names in ARNs in lower case.
            if name != self.settings.stack.name and prefix.lower() == wanted.lower():
                statement = f"the stack {name} in this account and region has the job prefix {prefix}, too"
                yield StatedProblem("stack.job_prefix", statement, "choose another")

    def _bucket_name(self) -> Iterator[Problem]:
        name = self.settings.bucket.name
        if name is None or (self.deployed is not None and self.new_bucket is None):
            return
        if self.account.bucket(name, self.place) is not None:
            statement = f"the bucket {name} exists already"
            remedy = f'to use it, write existing = "{name}" instead of name; or choose another name'
            yield StatedProblem("bucket.name", statement, remedy)

    def _own_data(self) -> Iterator[Problem]:
        """The rule of the settings file, for a bucket whose name only the deployed stack knows."""
        own = None if self.deployed is None else self.deployed.outputs.get("BucketName")
        if own not in {None, self.settings.bucket.existing, self.settings.bucket.name}:
            yield from own_data_problems(self.settings, own)

    def _running(self) -> Iterator[Problem]:
        """What takes from unfinished runs what they need."""
        changes = dict(self._cut_off())
        unfinished = self._unfinished() if changes else []
        if unfinished:
            remedy = "wait until they end, or cancel them with `muster cancel RUN`"
            yield from (
                StatedProblem(key, f"{change} while {_named(unfinished)}", remedy) for key, change in changes.items()
            )

    def _cut_off(self) -> Iterator[tuple[str, str]]:
        """The key and the change of what unfinished runs depend on: the names of their jobs, the bucket, their access
        to it, and what their plans name of the settings."""
        if self.deployed is None:
            return
        prefix = self.deployed.outputs.get("JobPrefix")
        if prefix and prefix != self.settings.job_prefix:
            yield "stack.job_prefix", f"{prefix} would become {self.settings.job_prefix}"
        if (bucket := self.new_bucket) is not None:
            yield "bucket", f"{self.deployed.outputs['BucketName']} would become {bucket}"
        for item in pinned_changes(self.deployed.settings, self.settings.tables):
            yield item.key, f"{shown(item.key, item.deployed)} would become {shown(item.key, item.new)}"

    @property
    def new_bucket(self) -> str | None:
        """The bucket that takes the place of the deployed one; None where it stays or there is no stack."""
        if self.deployed is None or "BucketName" not in self.deployed.outputs:
            return None
        return new_bucket(self.deployed.template, self.deployed.outputs["BucketName"], self.settings.bucket)

    def _unfinished(self) -> list[str]:
        """The runs that have not ended, and the jobs of others."""
        outputs = {} if self.deployed is None else self.deployed.outputs
        if not {"StateMachineArn", "JobPrefix"} <= outputs.keys():
            return []
        runs = self.account.running_runs(outputs["StateMachineArn"])
        jobs = self.account.active_jobs(outputs["JobPrefix"])
        return [*runs, *sorted(str(job.name) for job in jobs if job.name.run not in map(run_name, runs))]

    def _former_key(self) -> Iterator[Problem]:
        """A key of the stack stays: the stack's roles may use one key, and what is stored needs the one it has."""
        change = None if self.deployed is None else stack_key_change(self.deployed.settings, self.settings.tables)
        if change is not None:
            becomes = f"{change.deployed} would become {change.new or 'no key'}"
            statement = f"{becomes}, and the stack could no longer read the objects under the former key"
            remedy = "keep it, and let KMS rotate its material; for another key deploy a second stack"
            yield StatedProblem(change.key, statement, remedy)

    def _key(self) -> Iterator[Problem]:
        key = self.settings.stack.kms_key_arn
        if key is None:
            return
        try:
            policy = self.account.key_policy(key)
        except DeniedError:
            return  # a caller that may not read the policy has docs/deploying.md
        missing = missing_statements(policy, self.place)
        if missing:
            remedy = f"add these statements to the key's policy:\n{json.dumps(missing, indent=2)}"
            yield PastedProblem("stack.kms_key_arn", "the key's policy does not let the stack use it", remedy)

    def _roles(self) -> Iterator[Problem]:
        """Roles of the deployment's own that SageMaker may not assume with session tags."""
        replicas = self.settings.replicas
        roles = {f"replicas.further_role_arns.{index}": arn for index, arn in enumerate(replicas.further_role_arns)}
        if replicas.role_arn is not None:
            roles = {"replicas.role_arn": replicas.role_arn, **roles}
        wanted = role_trust(self.place)
        for key, arn in roles.items():
            try:
                trust = self.account.role_trust(arn)
            except DeniedError:
                continue  # a caller that may not read roles has docs/deploying.md
            if trust is None:
                yield StatedProblem(key, f"this account has no role {arn}", "make it first, or name another")
            elif not statement_is_held(trust, wanted):
                remedy = f"add this statement to the role's trust policy:\n{json.dumps(wanted, indent=2)}"
                statement = f"{arn} does not let SageMaker assume it with session tags, so no job could start"
                yield PastedProblem(key, statement, remedy)

    def _access_logs(self) -> Iterator[Problem]:
        target = self.settings.bucket.access_logs_bucket
        if target is None:
            return
        statement = {
            "Sid": "AccessLogsOfMuster",
            "Effect": "Allow",
            "Principal": {"Service": "logging.s3.amazonaws.com"},
            "Action": "s3:PutObject",
            "Resource": f"arn:{self.place.partition}:s3:::{target}/{self.settings.bucket.access_logs_prefix or ''}*",
            "Condition": {"StringEquals": {"aws:SourceAccount": self.place.account}},
        }
        state = self.account.bucket(target, self.place)
        if state is None:
            said = f"this account has no bucket {target} in {self.place.region}"
            yield StatedProblem("bucket.access_logs_bucket", said, "make it first, or name another")
        elif not statement_is_held({"Statement": [*state.statements]}, statement):
            remedy = f"add this statement to the bucket's policy:\n{json.dumps(statement, indent=2)}"
            yield PastedProblem("bucket.access_logs_bucket", "its policy does not let S3 write logs", remedy)


@dataclass(frozen=True)
class BucketCheck:
    """What an existing bucket lacks. `commands` are to be pasted, `later` those that need the deployed stack."""

    problems: Sequence[Problem] = ()
    later: Sequence[str] = ()


def check_bucket(
    account: Account, place: Locality, settings: StackSettings, template: Mapping[str, Any], folder: Path
) -> BucketCheck:
    """Check the bucket `bucket.existing`; what it lacks is written to `folder`, as the AWS CLI takes it."""
    name = settings.bucket.existing
    assert name is not None  # noqa: S101 - only called for such settings
    state = account.bucket(name, place)
    if state is None:
        said = f"this account has no bucket {name} in {place.region}"
        return BucketCheck([StatedProblem("bucket.existing", said, "make it first, or name another")])
    wanted = Requirements.from_template(template, name, place)
    problems = []
    for what, call, document, option in (
        ("policy statements", "put-bucket-policy", wanted.missing_policy(state), "policy"),
        (
            "lifecycle rules",
            "put-bucket-lifecycle-configuration",
            wanted.missing_lifecycle(state),
            "lifecycle-configuration",
        ),
    ):
        if document is not None:
            command = _command(name, call, option, document, folder)
            said = f"the bucket {name} lacks {what} that the stack needs"
            problems.append(StatedProblem("bucket.existing", said, command))
    notifications = wanted.missing_notifications(state)
    call, option = "put-bucket-notification-configuration", "notification-configuration"
    later = [] if notifications is None else [_command(name, call, option, notifications, folder)]
    return BucketCheck(problems, later)


def _command(bucket: str, call: str, option: str, document: Mapping[str, Any], folder: Path) -> str:
    """A command of the AWS CLI; its document, with what the bucket has already, lies in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{option}.json"
    file.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return f"run: aws s3api {call} --bucket {bucket} --{option} file://{file}"


def _named(runs: Sequence[str]) -> str:
    shown = ", ".join(runs[:3])
    return f"{shown}{' and others' if len(runs) > 3 else ''} {'is' if len(runs) == 1 else 'are'} running"
