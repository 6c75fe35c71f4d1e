"""A structure of CreateTrainingJob: fields in snake case here, members in CamelCase in the request."""

from __future__ import annotations

from typing import Any

from muster.contract.document import Document

# Words that CamelCase does not spell as they are said.
_SPELLINGS = {"gb": "GB"}


class Section(Document):
    """A structure of the request whose members are named as in CreateTrainingJob."""

    def request(self) -> dict[str, Any]:
        """The structure as CreateTrainingJob takes it; members that were left out stay out."""
        return {camel_case(name): _plain(value) for name, value in self if value is not None}


def camel_case(name: str) -> str:
    """`s3_output_path` -> `S3OutputPath`."""
    return "".join(_SPELLINGS.get(word, word[:1].upper() + word[1:]) for word in name.split("_"))


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.request()
    return [_plain(item) for item in value] if isinstance(value, list) else value
