"""What the server knows of a resource: its names, the rules of its kind, and what is asked before one is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.local.kubernetes.objects.status_errors import Document, Problem


class Rules:
    """The rules of a kind. Each method may be replaced; the store calls them under its lock, so they are quick."""

    def prepare(self, new: Document, old: Document | None) -> None:
        """Fill in defaults and what only the server sets. `old` is None for a new object."""

    def problems(self, new: Document, old: Document | None) -> Sequence[Problem]:
        """What is wrong with an object that someone wants to write."""
        _ = new, old
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
    namespaced: bool = field(default=True, compare=False)
    has_status: bool = field(default=False, compare=False)
    """Whether the status is a subresource: then it is written through it alone."""
    keeps_status: bool = field(default=False, compare=False)
    """Whether a new object may have a status, as nodes may."""
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


class Admission:
    """Lets everything pass. The store calls each method under its lock, for every caller."""

    def complete(self, resource: Resource, document: Document) -> Document:
        """The document as it will be kept: without unknown fields, with defaults.

        Raises:
            StatusError: 400 where it cannot be an object of this kind.
        """
        _ = resource
        return document

    def problems(self, resource: Resource, document: Document) -> Sequence[Problem]:
        """What its schema refuses."""
        _ = resource, document
        return ()

    def review(self, resource: Resource, document: Document, namespace: str) -> None:
        """Look at a new object.

        Raises:
            StatusError: 403 where it may not be created.
        """

    def created(self, resource: Resource, document: Document) -> None:
        """Do what follows from a new object."""


class NamespaceRules(Rules):
    """A namespace is active until it is deleted, and has a label with its name."""

    def prepare(self, new: Document, old: Document | None) -> None:
        """The label, the finalizer of its contents, and the phase."""
        metadata = new["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata.get("name", "")}
        if old is None:
            new["spec"] = {"finalizers": ["kubernetes"]}
            new["status"] = {"phase": "Active"}


NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    namespaced=False,
    has_status=True,
    rules=NamespaceRules(),
)
