"""A structure of CreateTrainingJob: its fields are in snake case here, its members in CamelCase in the request."""

from __future__ import annotations

from muster.contract.document import Document

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
