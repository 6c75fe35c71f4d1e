"""The account's quotas for SageMaker."""

from __future__ import annotations

from muster.client.aws.error_translation import translated
from muster.client.aws.light_session import AnySession


def granted_quotas(session: AnySession, region: str | None = None) -> dict[str, float]:
    """Every quota of SageMaker by its name, in the session's region or another one.

    Service Quotas answers 100 to a call, some twenty calls.

    Raises:
        ClientError: it cannot be reached or refuses (`servicequotas:ListServiceQuotas`).
    """
    with translated():
        pages = (
            session.client("service-quotas", region_name=region)
            .get_paginator("list_service_quotas")
            .paginate(ServiceCode="sagemaker")
        )
        return {item["QuotaName"]: float(item["Value"]) for page in pages for item in page["Quotas"]}
