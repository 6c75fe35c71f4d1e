"""The bus on which Muster tells what happens and is asked for runs."""

from __future__ import annotations

from aws_cdk import aws_events as events
from constructs import Construct


class EventBus(Construct):
    """A bus of the stack's own: its events cost nobody else a match, and a permission can name it."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(self, "Bus", description="Muster: runs and replicas")
