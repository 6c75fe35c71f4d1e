"""The base classes of every document that Muster writes or reads: frozen, strict, canonical as JSON.

What users write, and what programs print, is closed: an unknown field is an error. What Muster stores outlives the
version that wrote it: a deployment meets the runs of the version before it, and a rollback those of the version after.
So a stored document keeps the fields that its reader does not know, and has a form:

- A field that an older version may ignore is added with a default, and the form stays.
- Any other change makes a new form, with a `FormStep` from the one before. A reader applies all steps that a document
  lacks. A document of a newer form is refused by name: nothing is guessed. A new member of an enumeration needs a new
  form too: an older version may read it as `unknown`, and would write that back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import pydantic_core
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from muster.contract.errors import DocumentError, NewerDocumentError

Fields = dict[str, object]
"""A document as parsed JSON."""

_PLACE_MAX, _WORDS_MAX = 120, 300  # of a field's path and of an error's words
_Choice = TypeVar("_Choice", bound=StrEnum)
_VERSION_TEXT_MAX = 32  # of a version of Muster in a document that cannot be trusted yet


class FormStep(NamedTuple):
    """The step from one form of a document to the next one.

    `since` is the first version of Muster that reads the new form; `upgrade` is pure and turns the old one into it.
    """

    since: str
    upgrade: Callable[[Fields], Fields]


class Document(BaseModel):
    """A document with a fixed set of fields. Unknown fields are refused, and values are never coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True, serialize_by_alias=True)

    def to_json(self) -> bytes:
        """Canonical UTF-8 JSON: the same document gives the same bytes."""
        return canonical_json(self.model_dump(mode="json", exclude_none=True))

    def to_line(self) -> str:
        """One line of JSON with every field, for programs; an unknown value is null."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)


class StoredPart(Document):
    """A part of a stored document. Fields that another version of Muster added are kept and written back."""

    model_config = ConfigDict(extra="allow")


class StoredDocument(StoredPart):
    """A document that Muster stores and that another version of Muster may read or rewrite.

    A class with `steps` also has the field `readable_from`, the oldest version of Muster that reads its form: older
    versions can learn that from the document alone. Both defaults are those of `current_form`.
    """

    steps: ClassVar[tuple[FormStep, ...]] = ()
    """The steps from form 1 to the form that this version writes."""

    version: int = Field(default=1, ge=1, description="the form of the document")

    @classmethod
    def from_json(cls, body: bytes | str, uri: str) -> Self:
        """Read a document that Muster wrote; an error names `uri`, where it is stored.

        Raises:
            NewerDocumentError: its form is newer than this version of Muster.
            DocumentError: it is not such a document.
        """
        # Almost every document has the current form. It is parsed once, because user code may have written it.
        with suppress(ValidationError):
            found = cls.model_validate_json(body)
            if found.version == len(cls.steps) + 1:
                return found
            del found
        try:
            fields = pydantic_core.from_json(body)
        except ValueError as error:
            raise DocumentError(uri, str(error)) from None
        try:
            if isinstance(fields, dict) and (upgraded := cls._upgraded(fields, uri)) is not fields:
                body = json.dumps(upgraded)
            # From text: a strict model takes a list for a tuple and a text for an enum only there.
            return cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the document"
            # Names of a document that user code wrote can have any length.
            raise DocumentError(uri, f"{ascii(where[:_PLACE_MAX])[1:-1]}: {first['msg'][:_WORDS_MAX]}") from None

    @classmethod
    def current_form(cls) -> Fields:
        """The fields that state the form in what this version writes."""
        needed = {"readable_from": cls.steps[-1].since} if cls.steps else {}
        return {"version": len(cls.steps) + 1, **needed}

    @classmethod
    def _upgraded(cls, fields: Fields, uri: str) -> Fields:
        """The document in the current form; the same object where it has that form already."""
        form, current = fields.get("version", 1), len(cls.steps) + 1
        if not isinstance(form, int) or isinstance(form, bool) or form < 1 or form == current:
            return fields  # the model says what is wrong with a version that is none
        if form > current:
            needed = fields.get("readable_from")
            known = isinstance(needed, str) and 0 < len(needed) <= _VERSION_TEXT_MAX and needed.isprintable()
            raise NewerDocumentError(uri, form, current, str(needed) if known else None)
        for step in cls.steps[form - 1 :]:
            fields = step.upgrade(fields)
        return {**fields, **cls.current_form()}


def json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text that anybody may have written; an empty one where there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def written_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the names that documents have for them. `continue` can be no name in Python."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def known_member(value: str, otherwise: _Choice) -> _Choice:
    """The member of the enumeration with this value; `otherwise` for one that only another version of Muster knows."""
    kind = type(otherwise)
    return kind(value) if value in set(kind) else otherwise


def else_unknown(otherwise: StrEnum) -> BeforeValidator:
    """For a field of a stored document: a text that only another version of Muster knows is read as `otherwise`."""
    return BeforeValidator(lambda value: known_member(value, otherwise) if isinstance(value, str) else value)


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and no white space; NaN and Infinity are refused (ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
