"""The registry of AWS's own images in the region where the template is deployed."""

from __future__ import annotations

from aws_cdk import Aws, CfnCondition, Fn
from constructs import Construct

from muster.contract.aws.stock_images import STOCK_ACCOUNT, STOCK_ACCOUNTS


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
