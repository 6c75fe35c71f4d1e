"""Resources that a run cannot reach where it takes place: of another partition, region or account. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from muster.contract.aws.partitions import Locality
from muster.contract.aws.stock_images import EcrImage, is_stock_account, registry, stock_registry
from muster.contract.errors import Problem
from muster.contract.spec.private_values import PROGRAM_FIELDS
from muster.contract.text import shortened

# What the user's program reads: an ARN in it is the program's own affair.
_OF_THE_PROGRAM = PROGRAM_FIELDS | {"tags"}
# Each rung of a ladder is held to its own place (place_rules.py).
_PASSED_OVER = _OF_THE_PROGRAM | {"places"}
_ARN = re.compile(r"arn:([^:]+):([^:]*):([^:]*):([^:]*):.+", re.DOTALL)


def foreign_resources(document: object, here: Locality, place: str = "") -> Iterator[Problem]:
    """Every ARN and image in `document` (a spec or settings, as JSON) that does not work `here`.

    Credentials are of one partition. SageMaker uses keys, training plans and other resources of its own region alone,
    and refuses images of another region's registry. A role can be passed in its own account alone.
    """
    if isinstance(document, Mapping):
        for name, value in document.items():
            if name not in _PASSED_OVER:
                yield from foreign_resources(value, here, f"{place}.{name}" if place else str(name))
    elif isinstance(document, list | tuple):
        for position, value in enumerate(document):
            yield from foreign_resources(value, here, f"{place}[{position}]")
    elif isinstance(document, str):
        problem = _arn_problem(document, here, place) or _image_problem(document, here, place)
        if problem is not None:
            yield problem


def _arn_problem(text: str, here: Locality, field: str) -> Problem | None:
    found = _ARN.fullmatch(text)
    if found is None:
        return None
    partition, service, region, account = found.groups()
    shown = repr(shortened(text, 100))
    if partition != here.partition:
        allowed = f"a resource of the partition {here.partition}: the stack is in {here.region}"
        return Problem(field, shown, "name one that was made there", allowed)
    if region not in ("", here.region):
        return Problem(field, shown, "name one of that region", f"a resource in {here.region}, the stack's region")
    if service == "iam" and account != here.account and ":role/" in text:
        allowed = f"a role of the account {here.account}: a role cannot be passed to another account"
        return Problem(field, shown, "make a role there", allowed)
    return None


def _image_problem(text: str, here: Locality, field: str) -> Problem | None:
    image = EcrImage.parse(text)
    if image is None or image.region == here.region:
        return None
    allowed = f"an image in a registry of {here.region}: SageMaker pulls none from another region"
    if is_stock_account(image.account):
        remedy = f"use {stock_registry(here.region)}/{image.repository}{image.version}"
    else:
        remedy = f"copy it to {registry(here.account, here.region)}"
    return Problem(field, repr(text), remedy, allowed)
