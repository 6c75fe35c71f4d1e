"""The values and structures of CreateTrainingJob, with their limits as the service states them.

The fields of a structure are in snake case here, and its members in CamelCase in the request.

botocore checks types and minimum lengths only, so Muster checks patterns and maximum lengths before it sends anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document


@dataclass(frozen=True)
class Wording:
    """The words of a value's error: what its pattern allows, and what to do instead."""

    allowed: str = ""
    remedy: str = ""


# In the service's patterns (Java) `.` matches anything except a line break.
LINE = r"^[^\n\r\u0085\u2028\u2029]*$"
ONE_LINE = Wording("one line, without a line break")
_ARN = r"^arn:aws[a-z\-]*:"
S3_URI_MAX = 1_024

S3Uri = Annotated[
    str,
    Field(max_length=S3_URI_MAX, pattern=r"^s3://[a-z0-9][a-z0-9.\-]*[a-z0-9](/[^\n\r\u0085\u2028\u2029]*)?$"),
    Wording("s3://bucket or s3://bucket/key, on one line"),
]
KmsKeyId = Annotated[
    str,
    Field(min_length=1, max_length=2_048, pattern=r"^[a-zA-Z0-9:/_-]*$"),
    Wording("letters, digits and : / _ -", "write the key's ID, its ARN or its alias (alias/name)"),
]
RoleArn = Annotated[
    str,
    Field(min_length=20, max_length=2_048, pattern=_ARN + r"iam::[0-9]{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+$"),
    Wording("arn:aws:iam::123456789012:role/name", "write the role's whole ARN, not its name"),
]
RoleArnOrName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_048,
        # CreateRole: RoleName has 1-64 of these characters.
        pattern=_ARN + r"iam::[0-9]{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+$|^[a-zA-Z0-9_+=,.@\-]{1,64}$",
    ),
    Wording("arn:aws:iam::123456789012:role/name, or the name of a role", "write the role's ARN or its name"),
]
TrainingPlanArn = Annotated[
    str,
    Field(
        min_length=50,
        max_length=2_048,
        pattern=_ARN + r"sagemaker:[a-z0-9\-]*:[0-9]{12}:training-plan/[^\n\r\u0085\u2028\u2029]*$",
    ),
    Wording("arn:aws:sagemaker:region:123456789012:training-plan/name"),
]
InstanceType = Annotated[
    str,
    # No list of types here: the service's list grows with every release of botocore.
    Field(max_length=64, pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$"),
    Wording("ml.family.size, such as ml.g5.2xlarge"),
]
Image = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^\S+$"), Wording("no white space")]
Argument = Annotated[
    str,
    Field(min_length=1, max_length=256, pattern=LINE),
    Wording("one line, without a line break", "pass longer values in kwargs, in the environment or as an object in S3"),
]
Path = Annotated[
    str, Field(max_length=4_096, pattern=r"^/[^\n\r\u0085\u2028\u2029]*$"), Wording("an absolute path, on one line")
]

EnvironmentKey = Annotated[
    str,
    Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=512),
    Wording("letters, digits and underscores, and no digit at the beginning"),
]
EnvironmentValue = Annotated[str, Field(max_length=512), Wording(remedy="keep long values in kwargs or in S3")]
_TAG = r"^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$"
_TAG_WORDING = Wording("letters, digits, spaces and _ . : / = + - @")
TagKey = Annotated[str, Field(min_length=1, max_length=128, pattern=_TAG), _TAG_WORDING]
TagValue = Annotated[str, Field(max_length=256, pattern=_TAG), _TAG_WORDING]
HyperParameterKey = Annotated[str, Field(max_length=256, pattern=LINE), ONE_LINE]
HyperParameterValue = Annotated[
    str, Field(max_length=2_500, pattern=LINE), Wording("one line, without a line break", "keep long values in kwargs")
]
# Parameters of Debugger's hooks, collections and rules, and of the profiler.
ParameterKey = Annotated[str, Field(min_length=1, max_length=256, pattern=LINE), ONE_LINE]
ParameterValue = Annotated[str, Field(max_length=256, pattern=LINE), ONE_LINE]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=LINE), ONE_LINE]

RequestPart = dict[str, object]
"""Members of the CreateTrainingJob request, by their names. job_request.py joins them."""

# Words that CreateTrainingJob does not write in CamelCase.
_SPELLINGS = {"gb": "GB"}


class Section(Document):
    """A structure of the request whose members are named as in CreateTrainingJob."""

    def request(self) -> RequestPart:
        """The structure as CreateTrainingJob takes it, without the members that are not set."""
        return {camel_case(name): _plain(value) for name, value in self if value is not None}


def members(document: Document, *parts: type[Document]) -> RequestPart:
    """The members of the request that the fields of `parts` are, each under its own name, without those not set."""
    named = ((name, getattr(document, name)) for part in parts for name in part.model_fields)
    return {camel_case(name): _plain(value) for name, value in named if value is not None}


def camel_case(name: str) -> str:
    """`s3_output_path` -> `S3OutputPath`."""
    return "".join(_SPELLINGS.get(word, word[:1].upper() + word[1:]) for word in name.split("_"))


def _plain(value: object) -> object:
    if isinstance(value, Section):
        return value.request()
    return [_plain(item) for item in value] if isinstance(value, list) else value
