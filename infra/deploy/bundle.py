"""The two code archives of a deployment, made without Docker.

The functions' bundle holds our packages, their pinned dependencies and the replica package. That is Muster's replica,
which Python runs as it is: for specs that bring their source instead of an image. It travels in the bundle, so that the
function plan always has the package of its own version. An archive depends on its inputs alone
(sources, requirements, platform, compiler): the same inputs give the same bytes, so the CDK sees a change only where
there is one. Dependencies are installed once per platform and requirements file.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.contract.training.source_delivery import PACKAGE_FILE
from muster.infra.build_places import PACKAGE, build_folder
from muster.infra.deploy.bundled_models import OPERATIONS
from muster.infra.deploy.function_dependencies import (
    INSTALLATION_NOTES,
    compile_sources,
    install,
    target_of,
)
from muster.infra.settings.stack_settings import Platform

_PARTS = ("contract", "control", "report")  # the packages that the functions run, with those parts of each option
_DATA = ("report/assets", "contract/aws")  # the page's parts, instance types
_OPTIONS = "options"
_HANDLERS = "lambdas"
_REQUIREMENTS = "lambdas/requirements.txt"
_REPLICA_PACKAGES = ("contract", "replica")
_REPLICA_DATA = ("replica/kernel", "contract/aws")  # the kernel's source and libraries; instance types
_REPLICA_MAIN = "replica/entry/package_main.py"
_REPLICA_REQUIREMENTS = "replica/requirements.txt"
_OLDEST_TIME = (1980, 1, 1, 0, 0, 0)  # zip: the earliest


def build_bundle(platform: Platform, package: Path = PACKAGE, folder: Path | None = None) -> Path:
    """The path of the functions' bundle for `platform`, built in `folder` if the inputs have changed.

    Args:
        platform: where the functions run.
        package: the folder of the package `muster` that they run.
        folder: for the archive and for the installed dependencies; by default the build folder's.

    Raises:
        BundleError: uv could not install the dependencies.
    """
    target = target_of(platform)
    folder = _made(folder)
    requirements = package / _REQUIREMENTS
    operations = sorted(f"{service}:{name}" for service, names in OPERATIONS.items() for name in names)
    pruning = ",".join([*operations, *INSTALLATION_NOTES]).encode()
    dependencies = folder / f"{target.key}-{_digest([requirements.read_bytes(), pruning])}"
    if not dependencies.is_dir():
        install(requirements, target, dependencies)
    sources = {
        _name(path, package): path
        for path in [
            *_modules(package, ("__init__.py", _HANDLERS)),
            *sorted(package.glob(f"{_OPTIONS}/*/{_HANDLERS}/[a-z]*.py")),
            *_parts(package, _PARTS),
            *_data(package, _DATA),
        ]
    }
    parts = (part for name, path in sources.items() for part in (name.encode(), path.read_bytes()))
    replica_package = build_replica_package(package, folder)
    content = f"{dependencies.name} {_digest([*parts, replica_package.read_bytes()])}"
    archive = folder / f"{target.key}.zip"
    if _content(archive) != content:
        with tempfile.TemporaryDirectory(dir=folder) as staging:
            _copy(sources, Path(staging) / "code")
            compile_sources(target, Path(staging) / "code")
            shutil.copyfile(replica_package, Path(staging) / "code" / PACKAGE_FILE)
            folders = (dependencies, Path(staging) / "code")
            found = ((path, folder) for folder in folders for path in folder.rglob("*") if path.is_file())
            _write_zip({str(path.relative_to(folder)): path for path, folder in found}, archive, content)
    return archive


def build_replica_package(package: Path = PACKAGE, folder: Path | None = None) -> Path:
    """The path of the replica package, made of the package `muster` in `package` and written to `folder`."""
    archive = _made(folder) / PACKAGE_FILE
    names = ("__init__.py", *_replica_modules(package))
    sources = [*_modules(package, names), *_parts(package, _REPLICA_PACKAGES), *_data(package, _REPLICA_DATA)]
    files = {_name(path, package): path for path in sources}
    _write_zip(
        {**files, "__main__.py": package / _REPLICA_MAIN, "requirements.txt": package / _REPLICA_REQUIREMENTS}, archive
    )
    return archive


def _replica_modules(package: Path) -> Iterator[str]:
    """The public modules that trainers import: those that need nothing of Muster's but the replica's packages."""
    replica = re.compile(rf"muster\.({_OPTIONS}\.\w+\.)?({'|'.join(_REPLICA_PACKAGES)})\.")
    for path in sorted(package.glob("[a-z]*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        if all(replica.match(name) for name in imported if name.partition(".")[0] == "muster"):
            yield path.name


def _made(folder: Path | None) -> Path:
    made = build_folder() / "bundle" if folder is None else folder
    made.mkdir(parents=True, exist_ok=True)
    return made


def _name(path: Path, package: Path) -> str:
    """A file's name in an archive.

    The handlers are `lambdas.plan.handler`, as in stacks of every version: Lambda changes a function's code in one call
    and its handler's name in another, and between them a function with a new name would not start. Those of options
    lie beside them.
    """
    name = path.relative_to(package).as_posix()
    return f"{_HANDLERS}/{path.name}" if path.parent.name == _HANDLERS else f"muster/{name}"


def _modules(package: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """The Python files of packages, and single files."""
    for name in names:
        path = package / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _parts(package: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """The Python files of these packages of the core and of each option, and what the options' read beside them."""
    yield from _modules(package, names)
    options = package / _OPTIONS
    yield from sorted(options.glob("__init__.py"))
    for option in sorted(path.parent for path in options.glob("*/__init__.py")):
        folders = [option / name for name in names if (option / name).is_dir()]
        if folders:
            yield option / "__init__.py"
        for folder in folders:
            yield from sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".json", ".csv"))


def _data(package: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """What is read beside the code, in these folders."""
    for name in names:
        yield from sorted(path for path in (package / name).iterdir() if path.is_file() and path.suffix != ".py")


def _content(archive: Path) -> str | None:
    """What the archive was made from, as its comment says."""
    if not archive.exists():
        return None
    with zipfile.ZipFile(archive) as file:
        return file.comment.decode()


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.hexdigest()[:16]


def _copy(files: Mapping[str, Path], destination: Path) -> None:
    for name, path in files.items():
        place = destination / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def _write_zip(files: Mapping[str, Path], archive: Path, comment: str = "") -> None:
    """Write `files` by the order of their names, with one time and one mode, and put the archive in place whole."""
    partial = archive.with_name(f"{archive.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as output:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _OLDEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            output.writestr(entry, files[name].read_bytes())
        output.comment = comment.encode()
    partial.replace(archive)
