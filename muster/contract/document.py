"""The base class of every document that Muster writes or reads: frozen, closed, canonical as JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from muster.contract.errors import DocumentError


class Document(BaseModel):
    """A document with a fixed set of fields. Unknown fields are refused, and values are never coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def to_json(self) -> bytes:
        """Canonical UTF-8 JSON: the same document gives the same bytes."""
        return canonical_json(self.model_dump(mode="json", exclude_none=True))

    def to_line(self) -> str:
        """One line of JSON with every field, for programs; an unknown value is null."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, body: bytes | str, uri: str) -> Self:
        """Read a document that Muster wrote; an error names `uri`, where it is stored.

        Raises:
            DocumentError: it is not such a document.
        """
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the document"
            raise DocumentError(uri, f"{where}: {first['msg']}") from None


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and no white space; NaN and Infinity are refused (ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
