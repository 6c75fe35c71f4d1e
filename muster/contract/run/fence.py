"""The fence: once it stands, nothing of the run is launched any more."""

from __future__ import annotations

from muster.contract.document import Document
from muster.contract.run.result import Verdict


class Fence(Document):
    """Why a run is stopping. The first reason stands."""

    verdict: Verdict
    reason: str
    at: str
