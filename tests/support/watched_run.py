"""A run whose replicas apply the rules of `watch` to themselves, and what they find."""

from dataclasses import dataclass, field
from typing import Any

from muster.contract.run.finding import Finding, FindingDocument, findings_of, is_finding
from muster.contract.spec.watch_rules import Watch
from muster.options.watch.replica.self_watch import SelfWatch
from muster.replica.rendezvous import Rendezvous
from tests.support.peers import Run


@dataclass
class WatchedRun(Run):
    """A run whose replicas watch themselves."""

    watch: Watch = field(default_factory=Watch)

    def open(self, *given: Any, **fields: Any) -> Rendezvous:
        return self.watching(super().open(*given, **fields))

    def watching(self, rendezvous: Rendezvous) -> Rendezvous:
        rendezvous.rounds.judge = SelfWatch(rendezvous.rounds, self.watch)
        return rendezvous


def findings_in(run: Run) -> list[Finding]:
    """Those of `run`, not of others of its lineage."""
    paths = sorted((run.root / "commits").glob("finding-*"))
    documents = [FindingDocument.from_json(path.read_bytes(), path.name) for path in paths]
    assert all(
        is_finding(path.name) and path.name.startswith(findings_of(document.run))
        for path, document in zip(paths, documents, strict=True)
    )
    return [document.finding for document in documents if document.run == run.name]
