"""What a client says of the places of a stack (the seam `client.placement`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.backend_offers import ClientPlacement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import JsonValue

    from muster.client.aws.cloud import Cloud
    from muster.client.launch.planned_places import KnownPlace
    from muster.client.logs.log_reader import OtherLogs
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.plan import Plan
    from muster.contract.spec.spec import Spec


def _known(cloud: Cloud, spec: Spec) -> dict[str, KnownPlace]:
    from muster.options.places.client.place_facts import known_places  # noqa: PLC0415

    return known_places(cloud, spec)


def _logs(cloud: Cloud, run: str, attempts: Callable[[], Mapping[int, Iterable[Attempt]]]) -> OtherLogs:
    from muster.options.places.client.place_logs import PlaceLogs  # noqa: PLC0415

    return PlaceLogs(cloud, run, attempts)


def _request(plan: Plan, rank: int, known: Mapping[str, KnownPlace]) -> dict[str, JsonValue]:
    from muster.options.places.client.place_facts import first_request  # noqa: PLC0415

    return first_request(plan, rank, known)


OFFER = ClientPlacement(_known, _logs, _request)
"""What `muster plan` says of places, and the logs of jobs there."""
