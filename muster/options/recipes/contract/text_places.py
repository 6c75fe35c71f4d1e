"""Where the texts of a recipe are: a file, or an object in S3, which may be behind an access point. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.values import S3_URI_MAX

CUSTOMER_ID = "{customer_id}"
"""In a URI of a hub's document: the id of the account that reads it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
# S3, access points: the region and the account are never empty; the name has 3 to 50 characters.
_ACCESS_POINT = re.compile(
    r"(arn:aws[a-z\-]*:s3:(?P<region>[a-z0-9\-]+):[0-9]{12}:accesspoint/[a-z0-9][a-z0-9\-]{1,48}[a-z0-9])/(?P<key>.+)",
    re.DOTALL,
)
_FORMS = "s3://bucket/key, or s3://arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/key"


class PlaceError(Exception):
    """A place that cannot be read. `statement` says why, `remedy` what to do; who reads it knows the field.

    `part` is the part of that field that is wrong, if one is.
    """

    def __init__(self, statement: str, remedy: str, part: str = "") -> None:
        self.statement, self.remedy, self._part = statement, remedy, part
        super().__init__(f"{statement}; {remedy}")

    def problem(self, field: str) -> Problem:
        """The same as a problem of a spec."""
        return StatedProblem(f"{field}.{self._part}" if self._part else field, self.statement, self.remedy)


def refuse(statement: str, remedy: str, part: str = "") -> NoReturn:
    """Refuse a place.

    Raises:
        PlaceError: always.
    """
    raise PlaceError(statement, remedy, part)


class S3Place(NamedTuple):
    """An object. `bucket` is a bucket's name or the ARN of an access point: GetObject takes both."""

    bucket: str
    key: str
    region: str | None = None
    """Of an access point; the name of a bucket does not say it."""

    @property
    def uri(self) -> str:
        """`s3://bucket/key`, as errors name it."""
        return f"s3://{self.bucket}/{self.key}"


def is_local(place: str) -> bool:
    """Whether `place` is written as the path of a file or a folder, and neither as a URI nor as an ARN."""
    return not place.startswith("arn:") and _SCHEME.match(place) is None


def in_s3(place: str) -> bool:
    """Whether `place` names an object and not a file.

    Raises:
        PlaceError: it is a URL that is read from neither.
    """
    if place.startswith("arn:"):
        return True
    scheme = _SCHEME.match(place)
    name = scheme[1].lower() if scheme else ""
    if name in {"http", "https"}:
        statement = f"{place!r} is on the web, where its content can change between the check and the run"
        refuse(statement, f"download it, and name the file, or copy it to S3: {_FORMS}")
    if name not in {"", "s3"}:
        refuse(f"{place!r} has the unknown scheme {name}", f"name a file, or {_FORMS}")
    return name == "s3"


def s3_place(uri: str) -> S3Place:
    """The object that a URI or the ARN of an access point with a key names.

    Raises:
        PlaceError: it names none.
    """
    name = uri[len("s3://") :] if uri.lower().startswith("s3://") else uri
    if len(uri) > S3_URI_MAX:
        refuse(f"a URI of {len(uri):,} characters", f"use one of at most {S3_URI_MAX:,}")
    if name.startswith("arn:"):
        found = _ACCESS_POINT.fullmatch(name)
        if found is None:
            refuse(f"{uri!r} is not the ARN of an access point with a key", f"write {_FORMS}")
        return S3Place(found[1], found["key"], found["region"])
    bucket, _, key = name.partition("/")
    if not _BUCKET.fullmatch(bucket):
        refuse(f"{uri!r} names no bucket", f"write {_FORMS}")
    if not key or key.endswith("/"):
        refuse(f"{uri!r} names no object", f"write {_FORMS}")
    return S3Place(bucket, key)
