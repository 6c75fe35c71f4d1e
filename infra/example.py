"""A spec to begin with: whoever opens the console finds it in the stack's outputs and on its dashboard."""

from __future__ import annotations

import json

from muster.contract.spec.stack_defaults import StackDefaults

# AWS's own training image, for stacks whose specs have no image: any with a Python would do. AWS keeps its images for
# regions that have to be enabled first, and for China, in other accounts.
_IMAGE = "763104351884.dkr.ecr.{region}.amazonaws.com/pytorch-training:2.7.1-cpu-py312-ubuntu22.04-sagemaker"
_PROGRAM = "import os; print('Hello from replica', os.environ['MUSTER_RANK'], 'of the run', os.environ['MUSTER_RUN'])"


def example_input(defaults: StackDefaults, region: str, *, indent: int | None = None) -> str:
    """The spec, as the input of an execution: two replicas that only say who they are, in any image with a Python."""
    image = {} if defaults.image is not None else {"image": _IMAGE.format(region=region)}
    return json.dumps({"replicas": 2, "entrypoint": ["python", "-c", _PROGRAM], **image}, indent=indent)
