"""The HyperPod cluster as a service of the embedded cloud. What it needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.local.service.option_services import Hosted, OptionService, Right, ServiceParts
from muster.options.hyperpod.local.cluster_settings import ClusterSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

    from muster.local.counted_calls import Call
    from muster.local.ministack.host import Account
    from muster.local.service.http_request import EndpointRequest


def _adapt(account: Account) -> None:
    from muster.options.hyperpod.local.eks import access_entries, pod_identities, resource_arns  # noqa: PLC0415

    access_entries.install(account)
    pod_identities.install(account)
    resource_arns.install(account)


async def _rights(request: EndpointRequest, call: Call, account: Account) -> Sequence[Right]:
    from muster.options.hyperpod.local.eks.pod_identities import rights_to_pass  # noqa: PLC0415

    return await rights_to_pass(request, call, account)


def _host(parts: ServiceParts, settings: BaseModel) -> Hosted:
    from muster.options.hyperpod.local.hosted_cluster import hosted  # noqa: PLC0415

    return hosted(parts, ClusterSettings.model_validate(settings))


OFFER = OptionService(
    name="hyperpod",
    help="With a HyperPod cluster that EKS orchestrates.",
    settings=ClusterSettings,
    options={"name": "cluster", "node_type": "node_type", "nodes": "nodes"},
    adapt=_adapt,
    rights=_rights,
    host=_host,
)
