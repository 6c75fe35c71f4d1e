"""What the server knows of a resource: its names, its verbs, and the rules of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.local.kubernetes.objects.status_errors import Document, Problem

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Rules:
    """The rules of a kind. Each method may be replaced; the store calls them under its lock, so they are quick."""

    def prepare(self, new: Document, old: Document | None) -> None:
        """Fill in defaults and what only the server sets. `old` is None for a new object."""

    def problems(self, new: Document, old: Document | None) -> Sequence[Problem]:
        """What is wrong with an object that someone wants to write."""
        _ = new, old
        return ()

    def status_problems(self, new: Document, old: Document) -> Sequence[Problem]:
        """What is wrong with a status that someone wants to write."""
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
    singular: str
    namespaced: bool = field(default=True, compare=False)
    short_names: tuple[str, ...] = field(default=(), compare=False)
    categories: tuple[str, ...] = field(default=(), compare=False)
    verbs: tuple[str, ...] = field(default=ALL_VERBS, compare=False)
    has_status: bool = field(default=False, compare=False)
    """Whether the status is a subresource: then it is written through it alone."""
    keeps_status: bool = field(default=False, compare=False)
    """Whether a new object may have a status, as nodes may."""
    subresources: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, hash=False)
    """Further subresources with their verbs: log, eviction, token."""
    custom: bool = field(default=False, compare=False)
    """Of a CustomResourceDefinition: an update must name the resourceVersion."""
    fields: Mapping[str, Callable[[Document], str]] = field(default_factory=dict, compare=False, hash=False)
    """What field selectors may name besides the name and the namespace."""
    rules: Rules = field(default_factory=Rules, compare=False)

    @property
    def api_version(self) -> str:
        """As in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As in messages: `pods`, `hyperpodpytorchjobs.sagemaker.amazonaws.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


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
    "namespace",
    namespaced=False,
    short_names=("ns",),
    has_status=True,
    fields={"status.phase": lambda document: str(document.get("status", {}).get("phase", ""))},
    rules=NamespaceRules(),
)
