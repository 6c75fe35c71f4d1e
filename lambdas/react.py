"""React: a SageMaker training job changed its state."""

from __future__ import annotations

from typing import Any

from muster.contract.run.record import Next
from muster.control.active_run import Runs
from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, sagemaker_client, stepfunctions_client
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.aws.tokens import Tokens
from muster.control.react import JobStateChange, react
from muster.control.runtime.function import count, logger, metrics, read_environment, read_event
from muster.control.runtime.function_settings import FunctionEnvironment

_environment = read_environment(FunctionEnvironment)
_bus = Bus(events_client(), _environment.bus)
_tokens = Tokens(stepfunctions_client())
_runs = Runs(Store(s3_client(), _environment.bucket), Jobs(sagemaker_client()))

# Reruns have a metric that is not this function's alone (muster.control.announcements).
_METRICS = {
    Next.DONE: "ReplicaSucceeded",
    Next.FAIL: "ReplicaLost",
    Next.STOP: "QuorumLost",
}


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """What was done about the event. An error makes Lambda deliver it again, and at last to the dead-letter queue."""
    change = read_event(JobStateChange, event.get("detail"))
    logger.append_keys(job=change.TrainingJobName)
    reaction = react(change, _environment.job_prefix, _runs.find, _tokens, _bus)
    if reaction.name is not None:
        logger.append_keys(run_id=reaction.name.run, rank=reaction.name.rank, attempt=reaction.name.attempt)
    decision = reaction.decision
    logger.info(reaction.what, extra={"decision": decision.model_dump(mode="json") if decision else None})
    if decision is not None and decision.next in _METRICS:
        count(_METRICS[decision.next])
    return {"reaction": reaction.what}
