"""The input channels: every object below a channel's URI becomes a file below input/data/{name}."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from muster.contract.layout import path_in_channel, split_s3_uri
from muster.options.hyperpod.contract.pod_work import PodChannel
from muster.options.hyperpod.replica.objects import CONNECTIONS, Found, Objects
from muster.replica.replica_errors import InputError

_GIB = 2**30
_SHOWN = 5
_NAME_BYTES_MAX = 255  # Linux: of a file's name


@dataclass(frozen=True)
class Transfer:
    """An object, and the file that it becomes."""

    found: Found
    path: Path


Finish = Callable[[Transfer, str], None]
"""What is called when a file is complete, with the ETag of the version. In several threads."""


def download_channels(objects: Objects, channels: Sequence[PodChannel], base: Path) -> int:
    """Download all channels below `base`/input/data; returns their bytes.

    Raises:
        InputError: a channel is empty, has names that cannot be files, or is larger than the volume.
        StoreDeniedError, StoreUnavailableError, ObjectMissingError
        StoppedError: the pod is to end.
    """
    problems: list[str] = []
    transfers: list[Transfer] = []
    for channel in channels:
        place = base / "input" / "data" / channel.name
        place.mkdir(parents=True, exist_ok=True)
        found = objects.below(channel.uri)
        if not found:
            problems.append(f"the channel {channel.name} is empty: no object has a key that begins as {channel.uri}")
        planned = plan_transfers(found, split_s3_uri(channel.uri)[1], place)
        problems += [f"the channel {channel.name}: {problem}" for problem in name_problems(planned, place)]
        transfers += planned
    if problems:
        raise InputError(problems)
    size = sum(item.found.size for item in transfers)
    _check_room(size, base / "input" / "data")
    fetch(objects, transfers)
    return size


def plan_transfers(found: Sequence[Found], prefix: str, place: Path) -> list[Transfer]:
    """The files below `place` that the objects below `prefix` become."""
    return [Transfer(item, place / path_in_channel(item.key, prefix)) for item in found]


def name_problems(transfers: Sequence[Transfer], place: Path) -> list[str]:
    """Which keys cannot become files below `place`, in words; the first few."""
    paths = {PurePosixPath(item.path) for item in transfers}
    problems = []
    for item in transfers:
        parts = item.path.relative_to(place).parts
        is_long = any(len(os.fsencode(part)) > _NAME_BYTES_MAX for part in parts)
        if ".." in parts or not parts or is_long or "\0" in item.found.key:
            problems.append(f"{item.found.uri} cannot be a file: rename the object")
        elif any(PurePosixPath(parent) in paths for parent in item.path.parents):
            problems.append(f"{item.found.uri} would be a file below another file: rename one of the two objects")
    if len({item.path for item in transfers}) < len(transfers):
        problems.append("two of its objects would be the same file: rename one of them")
    return problems[:_SHOWN]


def fetch(objects: Objects, transfers: Sequence[Transfer], done: Finish = lambda _item, _etag: None) -> None:
    """Download side by side, and report each to `done` with its ETag; if one fails, no further one begins."""

    def download(item: Transfer) -> None:
        done(item, objects.download(item.found, item.path))

    with ThreadPoolExecutor(CONNECTIONS, "download") as pool:
        futures = [pool.submit(download, item) for item in transfers]
        ended, rest = wait(futures, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
    for future in ended:
        future.result()


def _check_room(needed: int, place: Path) -> None:
    free = shutil.disk_usage(place).free if needed else 0
    if needed > free:
        message = (
            f"the channels have {needed / _GIB:,.1f} GiB, and {place} has {free / _GIB:,.1f} GiB free: mount a larger "
            "volume there (hyperpod.volumes), or leave objects out"
        )
        raise InputError([message])
