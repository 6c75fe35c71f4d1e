"""Deleting a stack, and its bucket where that is asked for."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from muster.client.aws.error_translation import translated
from muster.contract.aws.partitions import Locality
from muster.contract.run.orphans import is_own
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.cdk_tools import DeployError
from muster.infra.deploy.deployed_template import is_kept, rules, timer_function

DELETE_SECONDS_MAX = 3_600  # CloudFormation: network interfaces of a VPC can hold a deletion up for most of an hour
_POLL_SECONDS = 2.0
_BATCH = 1_000  # S3: DeleteObjects takes at most 1,000 keys


@dataclass(frozen=True)
class Unfinished:
    """The names of what has not ended: runs, their jobs and orphans, and jobs that only have names like Muster's."""

    runs: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def blocking(self) -> list[str]:
        """What must end before the stack is deleted."""
        return [*self.runs, *self.jobs]


@dataclass(frozen=True)
class Destruction:
    """The deletion of one stack at a place."""

    account: Account
    stack: DeployedStack
    place: Locality

    @property
    def bucket(self) -> str:
        """The bucket that the stack uses."""
        return self.stack.outputs["BucketName"]

    @property
    def kinds(self) -> Counter[str]:
        """How many resources of each kind are deleted."""
        resources = self.stack.template.get("Resources", {}).values()
        return Counter(item["Type"] for item in resources if not is_kept(item))

    def unfinished(self) -> Unfinished:
        """The runs and training jobs that have not ended."""
        found = list(self.account.active_jobs(self.stack.outputs["JobPrefix"]))
        own = {job.arn: is_own(job.name, self.account.job_tags(job.arn)) for job in found}
        return Unfinished(
            runs=tuple(self.account.running_runs(self.stack.outputs["StateMachineArn"])),
            jobs=tuple(sorted(str(job.name) for job in found if own[job.arn])),
            foreign=tuple(sorted(str(job.name) for job in found if not own[job.arn])),
        )

    def stop_job(self, name: str) -> None:
        """Stop a training job. Nothing happens where it has ended meanwhile or is stopping already."""
        with translated("ValidationException", "ResourceNotFound"):
            self.account.client("sagemaker").stop_training_job(TrainingJobName=name)

    def disable_rules(self) -> None:
        """Disable the stack's rules, so that neither a schedule nor an event starts a run any more."""
        self._switch("disable_rule")

    def enable_rules(self) -> None:
        """Enable the rules again: the stack stays."""
        self._switch("enable_rule")

    def _switch(self, call: str) -> None:
        client = self.account.client("events")
        for rule, bus in rules(self.stack.template).items():
            # On a bus of its own, a rule's physical id is `bus|rule`.
            place = "default" if bus is None else self._physical[bus]
            with translated("ResourceNotFoundException"):  # a deletion before this one did not get further
                getattr(client, call)(Name=self._physical[rule].rpartition("|")[2], EventBusName=place)

    def delete_timers(self) -> None:
        """Delete the timers of runs, which belong to no stack. Other schedules may have names like theirs."""
        function = timer_function(self.stack.template)
        if function is None:
            return
        client = self.account.client("scheduler")
        target = f"{self.place.arn('lambda')}:function:{self._physical[function]}"
        prefix = f"{self.stack.outputs['JobPrefix']}-"
        with translated():
            pages = client.get_paginator("list_schedules").paginate(GroupName="default", NamePrefix=prefix)
            names = [item["Name"] for page in pages for item in page["Schedules"] if item["Target"]["Arn"] == target]
        for name in names:
            with translated("ResourceNotFoundException"):
                client.delete_schedule(GroupName="default", Name=name)

    @cached_property
    def _physical(self) -> dict[str, str]:
        """The physical ids of the stack's resources, by their logical ids."""
        with translated():
            pages = self.account.client("cloudformation").get_paginator("list_stack_resources").paginate
            found = [item for page in pages(StackName=self.stack.name) for item in page["StackResourceSummaries"]]
        return {item["LogicalResourceId"]: item.get("PhysicalResourceId", "") for item in found}

    def delete_stack(self) -> None:
        """Delete the stack and wait until it is gone. Safe to repeat.

        Raises:
            DeployError: CloudFormation could not delete it.
        """
        client = self.account.client("cloudformation")
        with translated():
            identity = client.describe_stacks(StackName=self.stack.name)["Stacks"][0]["StackId"]
            client.delete_stack(StackName=self.stack.name)
        deadline = time.monotonic() + DELETE_SECONDS_MAX
        while (status := self._status(identity)) != "DELETE_COMPLETE":
            if status == "DELETE_FAILED":
                message = f"The stack {self.stack.name} was not deleted: {self._reasons(identity)}"
                raise DeployError(message)
            if time.monotonic() > deadline:
                message = f"The stack {self.stack.name} is still being deleted ({status}): run the command again."
                raise DeployError(message)
            time.sleep(_POLL_SECONDS)

    def is_being_deleted(self) -> bool:
        """Whether CloudFormation has begun to delete the stack. It can then only be deleted."""
        return self._status(self.stack.name).startswith("DELETE_")

    def delete_bucket(self) -> None:
        """Delete the bucket with every object, version and unfinished upload in it."""
        client = self.account.client("s3")
        with translated():
            for page in client.get_paginator("list_object_versions").paginate(Bucket=self.bucket):
                found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                keys = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in found]
                for start in range(0, len(keys), _BATCH):
                    answer = client.delete_objects(
                        Bucket=self.bucket, Delete={"Objects": keys[start : start + _BATCH], "Quiet": True}
                    )
                    if answer.get("Errors"):
                        first = answer["Errors"][0]
                        message = f"{first['Key']} in {self.bucket} was not deleted: {first.get('Message')}"
                        raise DeployError(message)
            for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket):
                for upload in page.get("Uploads", []):
                    client.abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
            client.delete_bucket(Bucket=self.bucket)

    def _status(self, identity: str) -> str:
        """The stack's status; a stack that cannot be found any more is deleted."""
        found = []
        with translated("ValidationError"):
            found = self.account.client("cloudformation").describe_stacks(StackName=identity)["Stacks"]
        return str(found[0]["StackStatus"]) if found else "DELETE_COMPLETE"

    def _reasons(self, identity: str) -> str:
        with translated():
            events = self.account.client("cloudformation").describe_stack_events(StackName=identity)["StackEvents"]
        failed = [event for event in events if event.get("ResourceStatus") == "DELETE_FAILED"]
        reasons = [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason')}" for event in failed
        ]
        return "; ".join(reasons[:3]) or "CloudFormation gives no reason"
