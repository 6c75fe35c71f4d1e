"""The functions' code: what is in it, for which platform, and that the same inputs give the same bytes."""

import ast
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.loaders import Loader
from packaging.requirements import Requirement

from bench import cold_import
from muster.contract.exits import ReplicaExit
from muster.contract.training.source_delivery import SOURCE_CHANNEL
from muster.infra.deploy.bundle import build_bundle, build_replica_package
from muster.infra.deploy.bundled_models import OPERATIONS
from muster.infra.deploy.function_dependencies import BundleError
from muster.infra.settings.stack_settings import Platform
from tests.support.handlers import ENVIRONMENT, HANDLERS
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
    shutil.unpack_archive(local, folder)
    return folder


def house(folder: Path, local: Path) -> Path:
    """The folders of a package like Muster's, with little in them, and its dependencies, which are installed."""
    files = ["__init__.py", "torch.py", "torchft.py", "contract/aws/types.csv", "options/__init__.py"]
    files += ["options/hyperpod/__init__.py", "options/hyperpod/contract/schema.json"]
    files += ["control/react.py", "report/assets/page.html", "replica/entry/package_main.py"]
    for name in (*files, "replica/requirements.txt", "replica/kernel/kernel.c", "lambdas/plan.py"):
        file = folder / "muster" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n", encoding="utf-8")
    shutil.copyfile(ROOT / "lambdas" / "requirements.txt", folder / "muster" / "lambdas" / "requirements.txt")
    with zipfile.ZipFile(local) as archive:
        installed = folder / "bundle" / archive.comment.decode().split()[0]
    installed.mkdir(parents=True)
    (installed / "boto3.py").write_text("# installed\n", encoding="utf-8")
    return folder


def requirements(path: str) -> dict[str, Requirement]:
    """Those of a file that hold for Linux on the host's Python, by their names."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith(("#", "-", " "))]
    return {one.name.lower(): one for one in found if one.marker is None or one.marker.evaluate()}


def test_what_runs_elsewhere_is_what_is_tested() -> None:
    tested = requirements("requirements.txt")
    for name, pinned in requirements("lambdas/requirements.txt").items():
        assert tested[name].specifier == pinned.specifier, name
    asked = requirements("muster/replica/requirements.txt")
    assert set(asked) == {"pydantic", "numpy", "obstore", "xxhash"}
    for name, requirement in asked.items():
        [version] = [specifier.version for specifier in tested[name].specifier]
        assert version in requirement.specifier, name


def test_it_holds_our_packages_and_no_other_part_of_the_house(aws: Path, local: Path) -> None:
    for bundle in (aws, local):
        with zipfile.ZipFile(bundle) as archive:
            names = archive.namelist()
        sources = {name for name in names if name.endswith(".py")}
        for part in ("muster/control", "muster/contract", "muster/report", "lambdas"):
            wanted = {str(path.relative_to(ROOT)) for path in (ROOT / part).rglob("*.py")}
            assert wanted <= sources
        assert {"muster/report/assets/page.html", "muster/report/assets/uplot.min.js"} <= set(names)
        others = ("muster/client", "muster/replica", "muster/local", "infra", "botocore/data/ec2/")
        assert not [name for name in names if name.startswith(others)]
        assert "botocore/data/sagemaker/2017-07-24/service-2.json" in names
        # What says where and when a package was installed would give every machine a bundle of its own.
        assert not [name for name in names if name.endswith(("uv_cache.json", "RECORD", ".lock"))]


def test_it_describes_every_operation_that_the_code_of_the_functions_names() -> None:
    """An attribute, or the name of a paginator, with the name of an operation of one of the services."""
    loader = Loader()
    known: dict[str, set[tuple[str, str]]] = {}
    for service in OPERATIONS:
        for operation in loader.load_service_model(service, "service-2")["operations"]:
            known.setdefault(xform_name(operation), set()).add((service, operation))
    kept = {(service, operation) for service, operations in OPERATIONS.items() for operation in operations}
    named: set[str] = set()
    for folder in (ROOT / "muster" / "control", ROOT / "lambdas", *ROOT.glob("muster/options/*/control")):
        for path in sorted(folder.rglob("*.py")):
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


def test_it_is_small_enough_to_start_fast_and_built_for_where_it_runs(aws: Path, local: Path) -> None:
    for bundle in (aws, local):
        assert bundle.stat().st_size < 12 * MIB
        with zipfile.ZipFile(bundle) as archive:
            # Lambda: 250 MB unzipped; the models of all services alone would be 27.
            assert sum(entry.file_size for entry in archive.infolist()) < 40 * MIB
    with zipfile.ZipFile(aws) as archive:
        native = [name for name in archive.namelist() if name.endswith(".so")]
        assert any("pydantic_core" in name for name in native)
        assert all("cpython-313-aarch64" in name for name in native)
        assert {archive.read(name)[18:20] for name in native} == {ELF_AARCH64}


def test_every_handler_imports_from_the_bundle_alone(unpacked: Path) -> None:
    # -S: the virtual environment cannot help.
    handlers = ", ".join(f"lambdas.{name}" for name in HANDLERS)
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); import {handlers}, boto3, pydantic;"
        f"print({{m.__file__.startswith({str(unpacked)!r}) for m in ({handlers}, boto3, pydantic)}})"
    )
    command = [sys.executable, "-I", "-S", "-B", "-c", program]
    outcome = subprocess.run(
        command, env={**cold_import.ENVIRONMENT, **ENVIRONMENT}, capture_output=True, text=True, check=False
    )
    assert (outcome.stdout.strip(), outcome.returncode) == ("{True}", 0), outcome.stderr


def test_a_bundle_follows_from_its_inputs_and_is_not_built_again(tmp_path: Path, local: Path) -> None:
    first, second = (house(tmp_path / name, local) for name in ("first", "second"))
    made = [build_bundle(Platform.LOCAL, one / "muster", one / "bundle") for one in (first, second)]
    assert made[0].read_bytes() == made[1].read_bytes()
    before = made[0].stat()
    after = build_bundle(Platform.LOCAL, first / "muster", first / "bundle").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    (second / "muster" / "lambdas" / "plan.py").write_text("# changed\n", encoding="utf-8")
    assert build_bundle(Platform.LOCAL, second / "muster", second / "bundle").read_bytes() != made[0].read_bytes()


def test_a_dependency_that_does_not_exist_is_one_line_and_leaves_nothing(
    tmp_path: Path, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    made = house(tmp_path, local)
    (made / "muster" / "lambdas" / "requirements.txt").write_text("no-such-package==1.0\n", encoding="utf-8")
    before = set((made / "bundle").iterdir())
    with pytest.raises(BundleError, match="no-such-package") as refused:
        build_bundle(Platform.LOCAL, made / "muster", made / "bundle")
    assert "\n" not in str(refused.value)
    assert set((made / "bundle").iterdir()) == before


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


def test_the_replica_package_has_whatever_it_imports_and_whatever_trainers_import(tmp_path: Path) -> None:
    """Trainers: those that `muster init` writes, the examples, and what the guides show."""
    with zipfile.ZipFile(build_replica_package(folder=tmp_path)) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
        inside = {name: archive.read(name).decode() for name in held - {"muster/__init__.py"}}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in held}
    shown = re.findall(r"^from (muster\.\w+) import", read_all("docs/*.md", "README.md"), re.MULTILINE)
    written = read_all("muster/**/templates/*.py", "examples/frameworks/*.py", "examples/char_gpt/trainer.py")
    used = {*re.findall(r"from (muster\.\w+) import", written), *shown}
    assert {"muster.huggingface", "muster.lightning", "muster.torch", "muster.torchft"} <= used
    # For the machine that starts runs, not for a replica.
    assert used - {"muster.local", "muster.cdk", "muster.client", "muster.executor", "muster.recipes"} <= modules
    for name, text in inside.items():
        assert {module for module in imports(text) if module.startswith("muster.")} <= modules, name


def read_all(*patterns: str) -> str:
    """The text of all files of the repository with such names."""
    return "\n".join(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(ROOT.glob(pattern)))


def imports(text: str) -> set[str]:
    """The modules from which Python code imports."""
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def start(package: Path, base: Path, *options: str, arguments: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code of a replica package that runs in the folders `base` of a job, and what it says of its failure."""
    command = [sys.executable, *options, str(package), *arguments]
    environment = {"SAGEMAKER_BASE_DIR": str(base), "PATH": os.environ["PATH"]}
    outcome = subprocess.run(command, env=environment, capture_output=True, check=False)
    return outcome.returncode, (base / "output" / "failure").read_text()


def test_the_replica_package_starts_without_a_single_package_and_says_what_is_wrong(tmp_path: Path) -> None:
    body = build_replica_package(folder=tmp_path).read_bytes()
    for content, reason in ((body, "source_dir has 0 archives"), (body + b"\0", "is damaged: its SHA-256 is")):
        package = tmp_path / f"{hashlib.sha256(body).hexdigest()}.zip"
        package.write_bytes(content)
        code, said = start(package, tmp_path, "-I", "-S")
        assert code == ReplicaExit.BAD_INPUT, reason
        assert reason in said


def test_source_that_cannot_be_prepared_is_bad_input(tmp_path: Path) -> None:
    """What works is shown by tests/workflow."""
    body = build_replica_package(folder=tmp_path).read_bytes()
    package = tmp_path / f"{hashlib.sha256(body).hexdigest()}.zip"
    package.write_bytes(body)
    channel = tmp_path / "input" / "data" / SOURCE_CHANNEL
    channel.mkdir(parents=True)
    (channel / "source.tar.gz").write_bytes(b"no archive")
    assert "The source source.tar.gz cannot be unpacked" in start(package, tmp_path)[1]
    for requirements, program, said in (
        ("--no-index\nno-such-package==1.0\n", "true", "requirements.txt cannot be installed: No matching"),
        ("", "no-such-program", "The entrypoint 'no-such-program' cannot be started"),
    ):
        with tarfile.open(channel / "source.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo("requirements.txt")
            member.size = len(requirements)
            archive.addfile(member, io.BytesIO(requirements.encode()))
        code, failure = start(package, tmp_path, arguments=(program,))
        assert code == ReplicaExit.BAD_INPUT, said
        assert failure.startswith("[bad-input] "), failure
        assert said in failure, failure
