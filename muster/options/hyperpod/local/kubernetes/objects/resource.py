"""What the server knows of a resource: its names, and the rules of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document, Problem


class Rules:
    """The rules of a kind. Each method may be replaced; the store calls them under its lock, so they are quick."""

    def prepare(self, new: Document) -> None:
        """Fill in the defaults of a new object, and what only the server sets."""

    def problems(self, new: Document) -> Sequence[Problem]:
        """What is wrong with an object that someone wants to create."""
        _ = new
        return ()

    def grace(self, document: Document, asked: int | None) -> int:
        """Seconds between the wish to delete the object and its end; 0 deletes it at once."""
        _ = document, asked
        return 0


@dataclass(frozen=True)
class Resource:
    """A resource of the API. Two with the same group and plural are the same."""

    group: str
    version: str
    plural: str
    kind: str
    read_only: bool = field(default=False, compare=False)
    """Whether the API answers reads of it alone."""
    custom: bool = field(default=False, compare=False)
    """Of a CustomResourceDefinition."""
    rules: Rules = field(default_factory=Rules, compare=False)

    @property
    def api_version(self) -> str:
        """As in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As in messages: `pods`, `hyperpodpytorchjobs.sagemaker.amazonaws.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
