"""What is asked before an object is written, beside the rules of its kind."""

from __future__ import annotations

from collections.abc import Sequence

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.status_errors import Document, Problem


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
