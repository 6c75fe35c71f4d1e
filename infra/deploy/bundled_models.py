"""The descriptions of AWS services in the functions' bundle: cut down to what the functions call.

Botocore reads the whole description of a service when it makes a client, and makes a method for each operation of it.
SageMaker's has 380 operations in 4 MB of JSON, of which functions call seven; botocore's table of endpoints describes
400 services. Both are read in every cold start.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

OPERATIONS: Mapping[str, frozenset[str]] = {
    "eks": frozenset(
        {
            "CreatePodIdentityAssociation",
            "DeletePodIdentityAssociation",
            "DescribeCluster",
            "DescribePodIdentityAssociation",
            "ListPodIdentityAssociations",
        }
    ),
    "events": frozenset({"PutEvents"}),
    "logs": frozenset({"DescribeLogStreams", "GetLogEvents"}),
    # Botocore itself calls the last two: for a bucket in another region, and for directory buckets.
    "s3": frozenset(
        {"DeleteObject", "GetObject", "HeadObject", "ListObjectsV2", "PutObject", "HeadBucket", "CreateSession"}
    ),
    "sagemaker": frozenset(
        {
            "CreateTrainingJob",
            "DescribeHubContent",
            "DescribeTrainingJob",
            "ListTags",
            "ListTrainingJobs",
            "StopTrainingJob",
        }
    ),
    "scheduler": frozenset({"CreateSchedule"}),
    "sns": frozenset({"Publish"}),
    "stepfunctions": frozenset(
        {
            "DescribeExecution",
            "ListExecutions",
            "SendTaskFailure",
            "SendTaskSuccess",
            "StartExecution",
            "StopExecution",
        }
    ),
    "sts": frozenset({"AssumeRole"}),
}
"""What functions call, by service. A function that calls anything else fails: its client has no such method."""

_MODEL, _PAGES, _ENDPOINTS = "service-2.json", "paginators-1.json", "endpoints.json"
_UNUSED = ("examples-1.json", "waiters-2.json")


def cut_down(data: Path) -> None:
    """Cut botocore's `data` folder, which has only these services, down to their operations."""
    prefixes: set[str] = set()
    for service, operations in OPERATIONS.items():
        for folder in (path for path in (data / service).iterdir() if path.is_dir()):
            model = _with_operations(_read(folder / _MODEL), operations)
            prefixes.add(model["metadata"]["endpointPrefix"])
            _write(folder / _MODEL, model)
            if (pages := _found(folder / _PAGES)) is not None:
                kept = {name: page for name, page in _read(pages)["pagination"].items() if name in operations}
                _write(folder / _PAGES, {"pagination": kept})
            for name in _UNUSED:
                if (path := _found(folder / name)) is not None:
                    path.unlink()
    endpoints = _read(data / _ENDPOINTS)
    for partition in endpoints["partitions"]:
        partition["services"] = {name: one for name, one in partition["services"].items() if name in prefixes}
    _write(data / _ENDPOINTS, endpoints)


def _with_operations(model: Mapping[str, Any], operations: Iterable[str]) -> dict[str, Any]:
    """The description with these operations, and the shapes that they reach.

    Raises:
        KeyError: it has no such operation.
    """
    kept = {name: model["operations"][name] for name in sorted(operations)}
    shapes: dict[str, Any] = {}
    left = [name for operation in kept.values() for name in _shape_names(operation)]
    while left:
        name = left.pop()
        if name not in shapes:
            shapes[name] = model["shapes"][name]
            left += _shape_names(shapes[name])
    return {**model, "operations": kept, "shapes": dict(sorted(shapes.items()))}


def _shape_names(part: object) -> list[str]:
    """The shapes that a part of a description refers to."""
    if isinstance(part, list):
        return [name for item in part for name in _shape_names(item)]
    if not isinstance(part, dict):
        return []
    own = [part["shape"]] if isinstance(part.get("shape"), str) else []
    return own + [name for item in part.values() for name in _shape_names(item)]


def _found(path: Path) -> Path | None:
    """The file, or the compressed one."""
    return next((one for one in (path, path.with_name(f"{path.name}.gz")) if one.exists()), None)


def _read(path: Path) -> dict[str, Any]:
    found = _found(path)
    if found is None:
        raise FileNotFoundError(path)
    body = found.read_bytes()
    read: dict[str, Any] = json.loads(gzip.decompress(body) if found.suffix == ".gz" else body)
    return read


def _write(path: Path, value: object) -> None:
    """Write it without white space, uncompressed: the bundle is compressed as a whole, and Lambda unpacks it once."""
    if (before := _found(path)) is not None:
        before.unlink()
    path.write_text(json.dumps(value, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
