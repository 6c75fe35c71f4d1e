"""The functions' code: what is in it, for which platform, and that the same inputs give the same bytes."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from functools import cached_property
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape
from packaging.requirements import Requirement

from muster.contract.run.exits import ReplicaExit
from muster.control.aws.clients import Clients
from muster.infra.deploy.bundle import build_bundle, build_replica_package
from muster.infra.deploy.function_dependencies import BundleError
from muster.infra.deploy.service_models import OPERATIONS
from muster.infra.settings.stack_settings import Platform
from tests.support.template import ROOT

MIB = 1024 * 1024
ELF_AARCH64 = b"\xb7\x00"  # e_machine of an ELF header, at offset 18


@pytest.fixture(scope="module")
def local() -> Path:
    return build_bundle(Platform.LOCAL)


@pytest.fixture(scope="module")
def aws() -> Path:
    return build_bundle(Platform.AWS)


@pytest.fixture(scope="module")
def unpacked(local: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task-root")
    with zipfile.ZipFile(local) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def house(tmp_path: Path, local: Path) -> Path:
    """A copy of what the bundle is made from, with the installed dependencies."""
    for name in ("muster", "lambdas"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bundle").mkdir()
    with zipfile.ZipFile(local) as archive:
        installed = archive.comment.decode().split()[0]
    (tmp_path / "bundle" / installed).symlink_to(local.parent / installed)
    return tmp_path


def pins(path: Path) -> dict[str, str]:
    """Names and versions of a requirements file for Linux on the host's Python."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    found = [Requirement(line) for line in lines]
    return {r.name.lower(): str(r.specifier) for r in found if r.marker is None or r.marker.evaluate()}


def test_the_functions_run_the_versions_that_are_tested() -> None:
    functions, tested = pins(ROOT / "lambdas" / "requirements.txt"), pins(ROOT / "requirements.txt")
    assert {name: tested.get(name) for name in functions} == functions


@pytest.mark.parametrize("platform", Platform)
def test_it_holds_our_packages_and_no_other_part_of_the_house(platform: Platform) -> None:
    with zipfile.ZipFile(build_bundle(platform)) as archive:
        names = archive.namelist()
    sources = {name for name in names if name.endswith(".py")}
    for part in ("muster/control", "muster/contract", "muster/report", "lambdas"):
        wanted = {str(path.relative_to(ROOT)) for path in (ROOT / part).rglob("*.py")}
        assert wanted <= sources
    assert {"muster/report/assets/page.html", "muster/report/assets/uplot.min.js"} <= set(names)
    assert not [name for name in names if name.startswith(("muster/client", "muster/replica", "muster/local", "infra"))]
    assert "botocore/data/sagemaker/2017-07-24/service-2.json" in names
    assert not [name for name in names if name.startswith("botocore/data/ec2/")]
    # What says where and when a package was installed would give every machine a bundle of its own.
    assert not [name for name in names if name.endswith(("uv_cache.json", "RECORD", ".lock"))]


def test_it_describes_every_service_that_a_function_calls() -> None:
    opened = {name for name, member in vars(Clients).items() if isinstance(member, cached_property)}
    clients = {name for name in opened if not name.startswith("_")}
    assert clients == set(OPERATIONS)


def test_it_describes_every_operation_that_the_code_of_the_functions_names() -> None:
    """An attribute, or the name of a paginator, with the name of an operation of one of the services."""
    loader = Loader()
    known: dict[str, set[tuple[str, str]]] = {}
    for service in OPERATIONS:
        for operation in loader.load_service_model(service, "service-2")["operations"]:
            known.setdefault(xform_name(operation), set()).add((service, operation))
    kept = {(service, operation) for service, operations in OPERATIONS.items() for operation in operations}
    named: set[str] = set()
    for folder in ("muster/control", "lambdas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute):
                    named.add(node.attr)
                elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get_paginator":
                    [argument] = node.args
                    assert isinstance(argument, ast.Constant)
                    named.add(str(argument.value))
    used = {name for name in named if name in known} - {"search"}  # that of a regular expression
    assert {name for name in used if not known[name] & kept} == set()
    of_botocore = {("s3", "HeadBucket"), ("s3", "CreateSession")}
    assert {one for one in kept if xform_name(one[1]) not in used} == of_botocore


@pytest.mark.parametrize("service", sorted(OPERATIONS))
def test_what_it_describes_is_what_botocore_knows(unpacked: Path, service: str) -> None:
    whole, cut = Loader(), Loader(include_default_search_paths=False)
    cut.search_paths.append(str(unpacked / "botocore" / "data"))
    models = [ServiceModel(loader.load_service_model(service, "service-2"), service) for loader in (whole, cut)]
    assert set(models[1].operation_names) == OPERATIONS[service]
    assert models[0].metadata == models[1].metadata
    for name in OPERATIONS[service]:
        before, after = (described(model.operation_model(name)) for model in models)
        assert before == after


def described(operation: OperationModel) -> object:
    """An operation with everything that its shapes say."""

    def shape(one: Shape | None, seen: tuple[str, ...] = ()) -> object:
        if one is None or one.name in seen:
            return None
        parts = [*getattr(one, "members", {}).items()] if one.type_name == "structure" else []
        if one.type_name in {"list", "map"}:
            parts += [(part, getattr(one, part)) for part in ("member", "key", "value") if hasattr(one, part)]
        inner = [(name, shape(part, (*seen, one.name))) for name, part in parts]
        return one.name, one.type_name, one.serialization, one.metadata, inner

    errors = [shape(error) for error in operation.error_shapes]
    return operation.http, shape(operation.input_shape), shape(operation.output_shape), errors


def test_it_is_small_enough_to_start_fast(aws: Path, local: Path) -> None:
    for bundle in (aws, local):
        assert bundle.stat().st_size < 12 * MIB
        with zipfile.ZipFile(bundle) as archive:
            # Lambda: 250 MB unzipped; the models of all services alone would be 27.
            assert sum(entry.file_size for entry in archive.infolist()) < 40 * MIB


def test_native_code_is_built_for_where_it_runs(aws: Path) -> None:
    with zipfile.ZipFile(aws) as archive:
        native = [name for name in archive.namelist() if name.endswith(".so")]
        machines = {archive.read(name)[18:20] for name in native}
    assert any("pydantic_core" in name for name in native)
    assert all("cpython-313-aarch64" in name for name in native)
    assert machines == {ELF_AARCH64}


@pytest.mark.parametrize("handler", ["plan", "attempt", "react", "stop", "settle", "timer", "admit"])
def test_every_handler_imports_from_the_bundle_alone(unpacked: Path, handler: str) -> None:
    # -S: the virtual environment cannot help.
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r});"
        f"import lambdas.{handler}, boto3, pydantic;"
        f"print({{m.__file__.startswith({str(unpacked)!r}) for m in (lambdas.{handler}, boto3, pydantic)}})"
    )
    environment = {
        "MUSTER_BUCKET": "bucket",
        "MUSTER_JOB_PREFIX": "muster",
        "MUSTER_BUS": "bus",
        "MUSTER_REPLICA_ROLE_ARN": "arn:aws:iam::123456789012:role/replica",
        "MUSTER_LAUNCHER_ROLE_ARN": "arn:aws:iam::123456789012:role/launcher",
        "MUSTER_DEFAULTS": "{}",
        "MUSTER_LAUNCHES_PER_SECOND": "10",
        "MUSTER_TIMER_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:alarm",
        "MUSTER_TIMER_ROLE_ARN": "arn:aws:iam::123456789012:role/alarm",
        "POWERTOOLS_SERVICE_NAME": "muster",
        "POWERTOOLS_METRICS_NAMESPACE": "Muster",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    outcome = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.stdout.strip(), outcome.returncode) == ("{True}", 0), outcome.stderr


def test_the_same_inputs_give_the_same_bytes_and_a_change_gives_others(house: Path, local: Path) -> None:
    first = build_bundle(Platform.LOCAL, house / "muster", house / "bundle")
    assert first.read_bytes() == local.read_bytes()
    (house / "lambdas" / "plan.py").write_text("# changed\n", encoding="utf-8")
    assert build_bundle(Platform.LOCAL, house / "muster", house / "bundle").read_bytes() != local.read_bytes()


def test_a_bundle_that_is_there_is_not_built_again(house: Path) -> None:
    before = build_bundle(Platform.LOCAL, house / "muster", house / "bundle").stat()
    after = build_bundle(Platform.LOCAL, house / "muster", house / "bundle").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_dependency_that_does_not_exist_is_one_line_and_leaves_nothing(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (house / "lambdas" / "requirements.txt").write_text("no-such-package==1.0\n", encoding="utf-8")
    before = set((house / "bundle").iterdir())
    with pytest.raises(BundleError, match="no-such-package") as refused:
        build_bundle(Platform.LOCAL, house / "muster", house / "bundle")
    assert "\n" not in str(refused.value)
    assert set((house / "bundle").iterdir()) == before


def test_the_replica_package_holds_the_replica_alone_and_follows_from_its_sources(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "muster", tmp_path / "muster", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    first = build_replica_package(tmp_path / "muster", tmp_path)
    before = first.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = set(archive.namelist())
    assert {"__main__.py", "requirements.txt", "muster/torch.py", "muster/replica/entry/main.py"} <= names
    assert not [name for name in names if name.startswith(("muster/control", "muster/client", "muster/local"))]
    os.utime(tmp_path / "muster" / "__init__.py", (1, 1))
    assert build_replica_package(tmp_path / "muster", tmp_path).read_bytes() == before


def test_the_replica_package_starts_without_a_single_package_and_says_what_is_wrong(tmp_path: Path) -> None:
    body = build_replica_package(folder=tmp_path).read_bytes()
    for content, reason in ((body, "source_dir has 0 archives"), (body + b"\0", "is damaged: its SHA-256 is")):
        package = tmp_path / f"{hashlib.sha256(body).hexdigest()}.zip"
        package.write_bytes(content)
        command = [sys.executable, "-I", "-S", str(package)]
        outcome = subprocess.run(command, env={"SAGEMAKER_BASE_DIR": str(tmp_path)}, capture_output=True, check=False)
        assert outcome.returncode == ReplicaExit.BAD_INPUT, outcome.stderr
        assert reason in (tmp_path / "output" / "failure").read_text()


def test_what_the_replica_package_asks_of_an_image_is_what_is_tested() -> None:
    def read(path: str) -> dict[str, Requirement]:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        found = [Requirement(line) for line in lines if line and not line.startswith(("#", "-", " "))]
        return {requirement.name: requirement for requirement in found}

    pinned = read("requirements.txt")
    asked = read("muster/replica/requirements.txt")
    assert set(asked) == {"pydantic", "numpy", "obstore", "xxhash"}
    for name, requirement in asked.items():
        [version] = [specifier.version for specifier in pinned[name].specifier]
        assert version in requirement.specifier
