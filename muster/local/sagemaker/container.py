"""The one image that the embedded cloud has, and how a job's process is started from it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.local.environment import bare_environment
from muster.local.sagemaker.tree import JobTree

LOCAL_IMAGE = re.compile(r"muster-local/python(:[\w.-]+)?(@sha256:[0-9a-f]{64})?")
# What SageMaker runs in an image when a job names no entrypoint.
_DEFAULT_COMMAND = ["train"]


def is_local(image: str) -> bool:
    """Whether the embedded cloud has this image."""
    return LOCAL_IMAGE.fullmatch(image) is not None


def command(algorithm: Mapping[str, Any]) -> list[str]:
    """Entrypoint and arguments of a job."""
    return [*algorithm.get("ContainerEntrypoint", _DEFAULT_COMMAND), *algorithm.get("ContainerArguments", [])]


def working_directory(code: tuple[Path, ...], tree: JobTree) -> Path:
    """The image's working directory: the first code directory."""
    return code[0] if code else tree.root


def environment(
    tree: JobTree,
    code: tuple[Path, ...],
    request: Mapping[str, Any],
    platform: Mapping[str, str],
) -> dict[str, str]:
    """The process's environment: the image's, then the job's own, then what the platform sets.

    Nothing of the service's own environment but the PATH and the language.
    """
    image = {
        "PYTHONPATH": os.pathsep.join(str(directory) for directory in code),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Many jobs share this machine's cores: numerical libraries must not each take all of them.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return {
        **bare_environment(tree.home, tree.temporary),
        **image,
        **request.get("Environment", {}),
        "SAGEMAKER_BASE_DIR": str(tree.root),
        "TRAINING_JOB_NAME": request["TrainingJobName"],
        **platform,
    }
