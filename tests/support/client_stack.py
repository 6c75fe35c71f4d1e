"""A stack on the embedded cloud with the three outputs that a client needs."""

import json

from tests.support.workshop import Workshop

# Runs that never end on their own: these tests look at the client only.
MACHINE = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}}
TRUST = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
NOTHING = {"Effect": "Deny", "Action": ["*"], "Resource": "*"}


def deploy(workshop: Workshop, *, prefix: str = "muster") -> str:
    """A stack with a client's outputs; its name."""
    name = workshop.name("Stack")
    cloudformation = workshop.cloud.client("cloudformation")
    machine = workshop.cloud.client("stepfunctions").create_state_machine(
        name=f"{name}-runs", definition=json.dumps(MACHINE), roleArn=workshop.make_role([NOTHING], TRUST)
    )
    outputs = {
        "StateMachineArn": machine["stateMachineArn"],
        "BucketName": workshop.bucket,
        "JobPrefix": prefix,
        "Region": cloudformation.meta.region_name,
    }
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items() if value},
    }
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 0.05})
    return name
