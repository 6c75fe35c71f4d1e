"""How to start a run: the text at the head of the dashboard, and an example of a spec with an image of AWS's own."""

from __future__ import annotations

import json

from aws_cdk import Aws, CfnCondition, Fn
from constructs import Construct

from muster.contract.aws.stock_images import STOCK_ACCOUNT, STOCK_ACCOUNTS
from muster.infra.monitoring.console_links import ConsoleLinks

# AWS's own training image, for stacks that set no default image; any image with Python would do.
_IMAGE = "pytorch-training:2.7.1-cpu-py312-ubuntu22.04-sagemaker"
_PROGRAM = "import os; print('Hello from replica', os.environ['MUSTER_RANK'], 'of the run', os.environ['MUSTER_RUN'])"
_TEXT = """# {stack}
[Runs]({runs}) are executions of the state machine. The output of an execution holds the run's verdict, its figures \
and links; if the run failed, the cause says why and where to look. Results are in the [bucket]({bucket}). \
[Logs of the functions]({logs}) · [dead letters]({queues}).

**To start a run**, open the state machine, choose *Start execution* and enter a spec as the input. The spec below \
runs unchanged. To repeat an earlier run, choose *New execution* on its page: it starts with the same input.

```json
{example}
```"""


def example_input(registry: str | None, *, indent: int | None = None) -> str:
    """A spec as the input of an execution: two replicas that print their rank. It needs an image with Python only.

    `registry` is the one of AWS's own images in the stack's region; None if the stack has a default image.
    """
    image = {} if registry is None else {"image": f"{registry}/{_IMAGE}"}
    return json.dumps({"replicas": 2, "entrypoint": ["python", "-c", _PROGRAM], **image}, indent=indent)


def introduction(links: ConsoleLinks, *, machine: str, bucket: str, stack: str, example: str) -> str:
    """The text in Markdown; `machine` is the state machine's ARN, the others are names."""
    return _TEXT.format(
        stack=stack,
        runs=links.state_machine(machine),
        bucket=links.bucket(bucket),
        logs=links.log_groups(stack),
        queues=links.queues(),
        example=example,
    )


class StockRegistry(Construct):
    """One template serves every region: the account is chosen at deployment.

    By conditions, because CloudFormation refuses a template whose mapping lacks the region, and AWS opens new ones.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        chosen = STOCK_ACCOUNT
        for account in sorted(set(STOCK_ACCOUNTS.values())):
            regions = [region for region, owner in STOCK_ACCOUNTS.items() if owner == account]
            here = [Fn.condition_equals(Aws.REGION, region) for region in regions]
            expression = here[0] if len(here) == 1 else Fn.condition_or(*here)
            condition = CfnCondition(self, f"In{account}", expression=expression)
            chosen = Fn.condition_if(condition.logical_id, account, chosen).to_string()
        self.name = f"{chosen}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}"
