"""A reader of recipes whose files, objects and hubs are in memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.options.recipes.contract.checkout_recipe import checkout_recipe
from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.resolved_recipe import SourceText
from muster.options.recipes.contract.text_places import PlaceError, S3Place

ACCOUNT = "123456789012"


@dataclass
class MemoryReader:
    """Reads what it was given, and records what it was asked for."""

    texts: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)
    hubs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def read_text(self, place: str) -> str:
        if place not in self.texts:
            statement = f"{place} does not exist"
            raise PlaceError(statement, "correct the path")
        return _bounded(place, self.texts[place])

    def read_object(self, place: S3Place) -> str:
        if place.uri not in self.objects:
            statement = f"{place.uri} does not exist"
            raise PlaceError(statement, "correct the URI")
        return _bounded(place.uri, self.objects[place.uri])

    def hub_content(self, hub: str, model: str) -> Mapping[str, str] | None:
        self.asked.append(hub)
        document = self.hubs.get(hub, {}).get(model)
        if document is None:
            return None
        return {"HubContentArn": f"arn:{hub}/{model}", "HubContentDocument": json.dumps(document)}

    def hub_models(self, hub: str) -> Sequence[str]:
        return list(self.hubs.get(hub, {}))

    def account_id(self) -> str:
        self.asked.append("account")
        return ACCOUNT

    def files(self, folder: str) -> Sequence[str]:
        statement = f"{folder} is not a folder"
        raise PlaceError(statement, "correct the path")


def recipe_of_checkout(files: Mapping[str, str], base: str) -> SourceText:
    """The recipe `base` in a checkout of these files, which lies in the folder `there`."""
    reader = MemoryReader(texts={f"there/{path}": text for path, text in files.items()})
    return checkout_recipe(reader, "there", sorted(files), base)


def _bounded(place: str, text: str) -> str:
    if len(text) > TEXT_MAX:
        statement = f"{place} has {len(text):,} bytes"
        raise PlaceError(statement, f"at most {TEXT_MAX:,} are read")
    return text
