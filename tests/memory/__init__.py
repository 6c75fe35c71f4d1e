"""One AWS in memory, in virtual time: for unit tests of the control plane and for the simulation of faults.

    cloud = MemoryCloud()
    store = Store(cloud.client("s3"), cloud.bucket)
    jobs = TrainingJobs(cloud.client("sagemaker"))
    with cloud.clock.install():
        jobs.create(request)
        cloud.training.complete(request["TrainingJobName"])
        for event in cloud.notifications.drain():
            ...

It does exactly what the control plane and the client ask of AWS, no more: an operation or a parameter that it does not
have raises NotImplementedError. Every request and every answer is held against botocore's models. Where AWS does not
document its behaviour, the stricter reading is built. tests/conformance holds it to the embedded cloud.

`tests.memory.harness` puts the control plane over it: functions are called as Lambda, the workflow and events do.
"""

from tests.memory.calls import AwsError, Call, Fault, lost_answer, server_error, throttle
from tests.memory.clock import VirtualClock
from tests.memory.cloud import ACCOUNT, REGION, MemoryCloud

__all__ = [
    "ACCOUNT",
    "REGION",
    "AwsError",
    "Call",
    "Fault",
    "MemoryCloud",
    "VirtualClock",
    "lost_answer",
    "server_error",
    "throttle",
]
