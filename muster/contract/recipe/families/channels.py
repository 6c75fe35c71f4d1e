"""The channels of a recipe's data, and where a container finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from muster.contract.recipe.families.values import mapping_at, text_at
from muster.contract.training.model_source import is_object

DATA = "/opt/ml/input/data"
"""SageMaker mounts each channel in a folder of its name below this one."""
MODEL_MOUNT = f"{DATA}/model"


def channels_of(document: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """The channels of a spec, whatever is wrong with them."""
    found = document.get("input_data_config")
    yield from (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else ()


def channel_named(document: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue] | None:
    """The spec's channel of this name."""
    return next((one for one in channels_of(document) if one.get("channel_name") == name), None)


def mount_of(channel: Mapping[str, JsonValue]) -> str:
    """The path of a channel's data in the container: of one object its file, else the channel's folder.

    A URI that ends with a slash is a folder, whatever dots it has. Without one, the URI of an object and the prefix of
    a folder look alike: a last part with an extension that begins with a letter is an object.
    """
    folder = f"{DATA}/{channel.get('channel_name')}"
    uri = text_at(mapping_at(channel, "data_source", "s3_data_source"), "s3_uri")
    return f"{folder}/{uri.rpartition('/')[2]}" if is_object(uri) else folder
