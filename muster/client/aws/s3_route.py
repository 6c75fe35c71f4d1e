"""Which way replicas in a VPC take to S3: a gateway endpoint is free, a NAT gateway costs by the gigabyte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

NAT_DOLLARS_PER_GB = 0.045  # Amazon VPC pricing, NAT gateway, data processed in us-east-1; other regions more


@dataclass(frozen=True)
class Routes:
    """What EC2 says of a VPC: its route tables, and its endpoints for S3."""

    tables: tuple[Mapping[str, Any], ...]
    endpoints: tuple[Mapping[str, Any], ...]


def read_routes(ec2: Any, subnet: str, region: str) -> Routes:
    """The route tables of the VPC that `subnet` is in, and its endpoints for S3."""
    [found] = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
    inside = {"Name": "vpc-id", "Values": [found["VpcId"]]}
    tables = ec2.get_paginator("describe_route_tables").paginate(Filters=[inside])
    service = {"Name": "service-name", "Values": [f"com.amazonaws.{region}.s3"]}
    endpoints = ec2.describe_vpc_endpoints(Filters=[inside, service])["VpcEndpoints"]
    return Routes(tuple(table for page in tables for table in page["RouteTables"]), tuple(endpoints))


def nat_warning(subnets: Iterable[str], routes: Routes) -> str | None:
    """What a deployment is told whose replicas reach S3 through a NAT gateway; None where they do not."""
    if any(endpoint.get("VpcEndpointType") == "Interface" for endpoint in routes.endpoints):
        return None
    with_gateway = {table for endpoint in routes.endpoints for table in endpoint.get("RouteTableIds", ())}
    paying = [subnet for subnet in subnets if _is_through_nat(_table_of(subnet, routes), with_gateway)]
    if not paying:
        return None
    return (
        f"replicas in {', '.join(paying)} reach S3 through a NAT gateway, which costs about ${NAT_DOLLARS_PER_GB} for "
        "each GB: 8 replicas of 124 million parameters pay $0.50 a round. A gateway endpoint for S3 in the tables "
        "of their routes is free: aws ec2 create-vpc-endpoint."
    )


def _table_of(subnet: str, routes: Routes) -> Mapping[str, Any]:
    """The subnet's own route table, or else the main one of its VPC."""
    found: Mapping[str, Any] = {}
    for table in routes.tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                found = table
    return found


def _is_through_nat(table: Mapping[str, Any], with_gateway: set[str]) -> bool:
    return table.get("RouteTableId") not in with_gateway and any(
        "NatGatewayId" in route for route in table.get("Routes", ())
    )
