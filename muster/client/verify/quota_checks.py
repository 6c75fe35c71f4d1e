"""The account's quotas for training jobs, against what runs need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.client.launch.estimate import Quota
from muster.client.verify.asking import allowed
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, failed, ok, unchecked

QUOTA = "quota"
_SERVICE = "sagemaker"


@dataclass(frozen=True)
class Granted:
    """A quota as Service Quotas knows it."""

    value: float
    code: str


def gather_quotas(account: Account) -> Mapping[str, Granted]:
    """Every quota of SageMaker in the region by its name; 100 to a call, some twenty calls."""
    with allowed("servicequotas:ListServiceQuotas"):
        pages = account.other("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode=_SERVICE)
        return {
            item["QuotaName"]: Granted(float(item["Value"]), item["QuotaCode"])
            for page in pages
            for item in page["Quotas"]
        }


def judge_quotas(granted: Mapping[str, Granted], needs: Sequence[Quota]) -> Iterator[Check]:
    """One check for each quota that a run needs."""
    for need in needs:
        found = granted.get(need.name)
        if found is None:
            seen = f"Service Quotas has no quota named {need.name!r}: the type may not exist in this region."
            yield unchecked(QUOTA, seen, "Choose another instance type, or look in the Service Quotas console.")
            continue
        wanted = need.instances + need.for_fallbacks
        seen = f"{need.name}: {need.instances} needed, {found.value:g} granted."
        command = (
            f"aws service-quotas request-service-quota-increase --service-code {_SERVICE} --quota-code {found.code} "
            f"--desired-value {wanted}"
        )
        yield ok(QUOTA, seen) if found.value >= need.instances else failed(QUOTA, seen, f"Ask for more: {command}")
