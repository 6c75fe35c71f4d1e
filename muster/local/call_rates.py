"""How often an account may make a call: one token bucket for each operation, as AWS has them.

A rate that is not known is assumed, and says so. Rates of AWS differ by region; these are the lower ones where the
documentation gives two.
"""

from __future__ import annotations

from pydantic import Field, TypeAdapter

from muster.contract.document import Document


class CallRate(Document):
    """A token bucket: `burst` calls at once, then `per_second`."""

    service: str
    """The signing name."""
    operation: str
    """`*` for every operation of the service that has no row of its own, each with a bucket of its own. `reads` and
    `writes` of S3 are the operations of a partition of keys, which share one: new prefixes have no partition."""
    per_second: float = Field(gt=0)
    burst: int = Field(ge=1)
    source: str = "set by hand"


CALL_RATES: TypeAdapter[list[CallRate]] = TypeAdapter(list[CallRate])

_STATES = "*Step Functions quotas*, API action throttling"
_LOGS = "*CloudWatch Logs quotas*"
_S3 = "*Optimizing Amazon S3 performance*, for each partitioned prefix; burst assumed"
S3_READS, S3_WRITES = "reads", "writes"
_ASSUMED = "not known: assumed"
DEFAULT_RATES = tuple(
    CallRate(service=service, operation=operation, per_second=per_second, burst=burst, source=source)
    for service, operation, per_second, burst, source in (
        ("sagemaker", "ListTrainingJobs", 2, 4, "deepracer-on-aws#87; burst assumed"),
        ("sagemaker", "*", 10, 20, _ASSUMED),
        ("states", "StartExecution", 150, 800, _STATES),
        ("states", "StopExecution", 25, 500, _STATES),
        ("states", "DescribeExecution", 10, 250, _STATES),
        ("states", "ListExecutions", 2, 100, _STATES),
        ("states", "GetExecutionHistory", 5, 400, _STATES),
        ("states", "DescribeStateMachine", 5, 200, _STATES),
        ("states", "SendTaskSuccess", 500, 3000, _STATES),
        ("states", "SendTaskFailure", 500, 3000, _STATES),
        ("logs", "FilterLogEvents", 5, 5, _LOGS),
        ("logs", "GetLogEvents", 10, 10, _LOGS),
        ("logs", "DescribeLogStreams", 5, 5, _LOGS),
        ("logs", "DescribeLogGroups", 10, 10, _LOGS),
        ("s3", S3_READS, 5500, 5500, _S3),
        ("s3", S3_WRITES, 3500, 3500, _S3),
        ("lambda", "GetFunction", 100, 100, "*Lambda quotas*"),
        ("scheduler", "CreateSchedule", 50, 50, "*Quotas for EventBridge Scheduler*"),
        ("scheduler", "DeleteSchedule", 50, 50, "*Quotas for EventBridge Scheduler*"),
        ("scheduler", "GetSchedule", 50, 50, "*Quotas for EventBridge Scheduler*"),
        ("cloudformation", "DescribeStacks", 10, 20, _ASSUMED),
    )
)
