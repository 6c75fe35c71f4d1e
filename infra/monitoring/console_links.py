"""Links to the AWS consoles of the stack's region."""

from __future__ import annotations

from aws_cdk import Aws, CfnMapping
from constructs import Construct

from muster.contract.aws.partitions import CONSOLE_DOMAINS


class ConsoleLinks(Construct):
    """One template serves every partition: the console's domain is looked up at deployment."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        domains = {partition: {"Domain": domain} for partition, domain in CONSOLE_DOMAINS.items()}
        domain = CfnMapping(self, "Domains", mapping=domains).find_in_map(Aws.PARTITION, "Domain")
        self._base = f"https://{Aws.REGION}.{domain}"

    def state_machine(self, arn: str) -> str:
        """The executions of a state machine."""
        return f"{self._home('states')}#/statemachines/view/{arn}"

    def bucket(self, name: str) -> str:
        """The objects of a bucket."""
        return f"{self._base}/s3/buckets/{name}?region={Aws.REGION}"

    def log_groups(self, name_part: str) -> str:
        """The log groups whose names contain `name_part`."""
        return f"{self._home('cloudwatch')}#logsV2:log-groups$3FlogGroupNameFilter$3D{name_part}"

    def queues(self) -> str:
        """The account's queues."""
        return f"{self._home('sqs/v3')}#/queues"

    def dashboard(self, name: str) -> str:
        """A dashboard."""
        return f"{self._home('cloudwatch')}#dashboards/dashboard/{name}"

    def _home(self, service: str) -> str:
        return f"{self._base}/{service}/home?region={Aws.REGION}"
