"""Whether an image's name is one that SageMaker can pull."""

from __future__ import annotations

import re

from muster.client.checks.check_findings import CheckFindings
from muster.contract.errors import Problem

# The grammar of image names (distribution/reference): a registry has a dot, a port, or is localhost.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REGISTRY = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:[0-9]))(?::[0-9]+)?"
_NAME = re.compile(
    rf"(?:(?P<registry>{_REGISTRY})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@[A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{32,})?"
)
# Placeholders of a dry run, and images of the embedded cloud.
_OWN = ("<", "muster-local/")
_EXAMPLE = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


def check_image(image: str) -> CheckFindings:
    """What is wrong with the name, or left to chance by it."""
    if image.startswith(_OWN):
        return CheckFindings()
    found = _NAME.fullmatch(image)
    if found is None:
        allowed = "registry/repository:tag, with a repository in lower case"
        remedy = f"write it as {_EXAMPLE}/training:1"
        return CheckFindings((Problem("image", repr(image), remedy, allowed),))
    remarks = []
    if not found["registry"]:
        remarks.append(
            f"the image {image} names no registry, and SageMaker pulls from Amazon ECR: write {_EXAMPLE}/{image}"
        )
    if not found["tag"] and not found["digest"]:
        remarks.append(
            f"the image {image} has no tag, so it is `latest`, which may change between attempts: name a tag"
        )
    return CheckFindings(remarks=tuple(remarks))
