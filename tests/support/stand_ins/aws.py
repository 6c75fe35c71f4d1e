"""What pages show of `aws s3` and `aws lambda`, on the cloud of the shell. The AWS CLI itself is not installed."""

import argparse
import json
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import boto3
import jmespath


def main(words: list[str]) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="aws")
    parser.add_argument("service", choices=["lambda", "s3"])
    service = parser.parse_args(words[:1]).service
    return _lambda(words[1:]) if service == "lambda" else _s3(words[1:])


def _lambda(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="aws lambda")
    parser.add_argument("operation", choices=["list-versions-by-function", "delete-function"])
    parser.add_argument("--function-name", required=True)
    parser.add_argument("--qualifier")
    parser.add_argument("--query", default="@")
    asked = parser.parse_args(words)
    qualifier = {} if asked.qualifier is None else {"Qualifier": asked.qualifier}
    call = getattr(boto3.client("lambda"), asked.operation.replace("-", "_"))
    answer = call(FunctionName=asked.function_name, **qualifier)
    if asked.operation.startswith("list"):
        sys.stdout.write(json.dumps(jmespath.search(asked.query, answer), indent=4) + "\n")
    return 0


def _s3(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="aws s3")
    parser.add_argument("verb", choices=["mb", "cp", "sync", "rm"])
    parser.add_argument("places", nargs="+")
    parser.add_argument("--recursive", action="store_true")
    parser.add_argument("--exclude", default=None)
    parser.add_argument("--include", default=None)
    asked = parser.parse_args(words)
    s3 = boto3.client("s3")
    if asked.verb == "mb":
        s3.create_bucket(Bucket=_split(asked.places[0])[0])
    elif asked.verb == "rm":
        bucket, prefix = _split(asked.places[0])
        for key in _keys(s3, bucket, prefix):
            s3.delete_object(Bucket=bucket, Key=key)
    else:
        source, target = asked.places
        for name, content in _read(s3, source).items():
            if asked.exclude is None or fnmatch(name, asked.include or ""):
                _write(s3, target, name, content)
    return 0


def _read(s3: Any, source: str) -> dict[str, bytes]:
    """The objects or files below `source` (or `source` itself), by the rest of their names."""
    if source.startswith("s3://"):
        bucket, prefix = _split(source)
        keys = _keys(s3, bucket, prefix)
        return {key.removeprefix(prefix): s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}
    path = Path(source)
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(part.relative_to(path)): part.read_bytes() for part in path.rglob("*") if part.is_file()}


def _write(s3: Any, target: str, name: str, content: bytes) -> None:
    if target.startswith("s3://"):
        bucket, prefix = _split(target)
        s3.put_object(Bucket=bucket, Key=prefix + name, Body=content)
    else:
        path = Path(target) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _keys(s3: Any, bucket: str, prefix: str) -> list[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [item["Key"] for page in pages for item in page.get("Contents", [])]


def _split(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
