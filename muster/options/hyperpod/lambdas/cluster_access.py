"""Cluster access: lets the functions of the stack into a cluster, for CloudFormation."""

from __future__ import annotations

from functools import partial

from muster.control.aws.clients import Clients
from muster.control.runtime.function import imported, logger
from muster.options.hyperpod.control.cluster_access import AccessRequest, answered, open_api, send

_open = partial(open_api, Clients())


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, object], context: object) -> dict[str, str]:
    """What CloudFormation was answered."""
    request = AccessRequest.model_validate(event)
    answer = answered(request, _open)
    logger.info("answered", extra={"request": request.kind, "status": answer.Status, "reason": answer.Reason})
    send(request, answer)
    return {"status": answer.Status}


imported()
