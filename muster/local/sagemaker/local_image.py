"""The one image of the embedded cloud, and how a job's process starts from it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from muster.local.process_environment import bare_environment
from muster.local.sagemaker.job_hosts import Host, name_variables
from muster.local.sagemaker.job_tree import JobTree

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import AlgorithmSpecificationUnionTypeDef, CreateTrainingJobRequestTypeDef

LOCAL_IMAGE = re.compile(r"muster-local/python(:[\w.-]+)?(@sha256:[0-9a-f]{64})?")
# What SageMaker runs in an image if a job names no entrypoint.
_DEFAULT_COMMAND = ["train"]


def is_local(image: str) -> bool:
    """Whether the embedded cloud has this image."""
    return LOCAL_IMAGE.fullmatch(image) is not None


def command(algorithm: AlgorithmSpecificationUnionTypeDef) -> list[str]:
    """Entrypoint and arguments of a job."""
    return [*algorithm.get("ContainerEntrypoint", _DEFAULT_COMMAND), *algorithm.get("ContainerArguments", [])]


def working_directory(code: tuple[Path, ...], tree: JobTree) -> Path:
    """The image's working directory: the first code directory."""
    return code[0] if code else tree.root


def image_variables(home: Path, temporary: Path, code: tuple[Path, ...]) -> dict[str, str]:
    """What the image itself sets. Of the service's own environment it has only the PATH and the language."""
    return {
        **bare_environment(home, temporary),
        "PYTHONPATH": os.pathsep.join(str(directory) for directory in code),
        "PYTHONUNBUFFERED": "1",
        # Many jobs share the cores of this machine: numerical libraries must not each use all of them.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def environment(
    tree: JobTree,
    code: tuple[Path, ...],
    request: CreateTrainingJobRequestTypeDef,
    platform: Mapping[str, str],
    hosts: list[Host],
) -> dict[str, str]:
    """The environment of a container's first process: the image's, then the job's own, then the platform's."""
    own = {**image_variables(tree.home, tree.temporary, code), **request.get("Environment", {})}
    return {
        **own,
        **name_variables(hosts, own),
        "SAGEMAKER_BASE_DIR": str(tree.root),
        "TRAINING_JOB_NAME": request["TrainingJobName"],
        **platform,
    }
