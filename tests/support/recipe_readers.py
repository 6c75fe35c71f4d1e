"""A reader of recipes whose files, objects and hubs are in memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.options.recipes.contract.places import PlaceError, S3Place
from muster.options.recipes.contract.recipe_reader import Checkout, HubContent

ACCOUNT = "123456789012"


@dataclass
class MemoryCheckout:
    """A checkout with these files."""

    texts: Mapping[str, str]

    def files(self) -> Sequence[str]:
        return sorted(self.texts)

    def read(self, path: str, limit: int) -> str:
        return _bounded(path, self.texts[path], limit)


@dataclass
class MemoryReader:
    """Reads what it was given, and records what it was asked for."""

    texts: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)
    hubs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def read_text(self, place: str, limit: int) -> str:
        if place not in self.texts:
            statement = f"{place} does not exist"
            raise PlaceError(statement, "correct the path")
        return _bounded(place, self.texts[place], limit)

    def read_object(self, place: S3Place, limit: int) -> str:
        if place.uri not in self.objects:
            statement = f"{place.uri} does not exist"
            raise PlaceError(statement, "correct the URI")
        return _bounded(place.uri, self.objects[place.uri], limit)

    def hub_content(self, hub: str, model: str) -> HubContent | None:
        self.asked.append(hub)
        document = self.hubs.get(hub, {}).get(model)
        return None if document is None else HubContent(hub, model, f"arn:{hub}/{model}", json.dumps(document))

    def hub_models(self, hub: str) -> Sequence[str]:
        return list(self.hubs.get(hub, {}))

    def account_id(self) -> str:
        self.asked.append("account")
        return ACCOUNT

    def checkout(self, folder: str) -> Checkout:
        statement = f"{folder} is not a folder"
        raise PlaceError(statement, "correct the path")


def _bounded(place: str, text: str, limit: int) -> str:
    if len(text) > limit:
        statement = f"{place} has {len(text):,} bytes"
        raise PlaceError(statement, f"at most {limit:,} are read")
    return text
