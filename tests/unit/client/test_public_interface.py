"""The names of `muster`: complete, documented, typed, and imported only when they are used."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import boto3
import pytest
from pydantic import BaseModel

import muster
from muster import client
from muster.client.cli.program import Commands

# Modules import what their annotations name only where they use it, or for type checkers: users find it here.
NAMES = {"boto3": boto3, **{name: getattr(muster, name) for name in muster.__all__}}
ROOT = Path(muster.__file__).parents[1]
CLASSES = [name for name in muster.__all__ if name != "__version__"]
# Opaque to users: a page is rendered, a rendezvous is passed on.
OPAQUE = {"Page"}
# Trainers use the methods of DiLoCo, and only read or pass on the others.
VALUES = {"Algorithm", "Context", "Metrics", "Outcome", "Spec"}


def public_methods(kind: type) -> Iterator[typing.Callable[..., object]]:
    """The constructor, the methods and the properties that are Muster's own."""
    for name, member in inspect.getmembers(kind):
        found = member.fget if isinstance(member, property) else member
        own = inspect.isroutine(found) and str(getattr(found, "__module__", "")).startswith("muster.")
        if own and (name == "__init__" or not name.startswith("_")):
            yield typing.cast("typing.Callable[..., object]", found)


def named(annotation: object) -> Iterator[type]:
    """Muster's own classes in an annotation."""
    if isinstance(annotation, type) and annotation.__module__.startswith("muster."):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from named(argument)


def returned(kind: type) -> Iterator[type]:
    """The classes that a user can get from an object of `kind`: by its methods, or as its fields."""
    for method in public_methods(kind):
        yield from named(typing.get_type_hints(method, localns=NAMES).get("return"))
    if issubclass(kind, BaseModel):
        for field in kind.model_fields.values():
            yield from named(field.annotation)


def raised(documentation: str) -> Iterator[str]:
    """The errors below `Raises:` in a docstring."""
    _, _, below = documentation.partition("Raises:\n")
    for names in re.findall(r"^ *([A-Z]\w+Error(?:, [A-Z]\w+Error)*)(?::|$)", below, re.MULTILINE):
        yield from names.split(", ")


def test_the_table_the_type_checkers_imports_and_all_hold_the_same_names() -> None:
    tree = ast.parse(Path(muster.__file__).read_text(encoding="utf-8"))
    imports = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == muster._HOMES
    assert sorted([*imports, "__version__"]) == sorted(muster.__all__)
    assert set(muster.__all__) <= set(dir(muster))
    for name, module in imports.items():
        assert getattr(muster, name).__module__ == module, name


def test_the_version_is_that_of_the_package() -> None:
    assert muster.__version__ == version("muster-train")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'muster' has no attribute 'Nothing'"):
        muster.Nothing  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(client, "Muster")


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_is_documented_and_leads_only_to_public_ones(name: str) -> None:
    kind = getattr(muster, name)
    assert kind.__doc__, name
    assert not kind.__doc__.startswith(f"{name}("), name
    if name in OPAQUE | VALUES:
        return
    for method in public_methods(kind):
        documentation = inspect.getdoc(method) or ""
        assert documentation or method.__name__ == "__init__", f"{name}.{method.__name__}"
        for error in raised(documentation):
            assert error in muster.__all__ or hasattr(builtins, error), f"{name}.{method.__name__}: {error}"
    for found in returned(kind):
        assert found.__name__ in muster.__all__, f"{name}: {found}"


def test_an_error_leads_to_the_root_of_all() -> None:
    for name in CLASSES:
        kind = getattr(muster, name)
        if issubclass(kind, Exception):
            assert issubclass(kind, muster.MusterError), name
            assert name.endswith("Error")


def test_importing_muster_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import muster; print(*sorted(set(sys.modules) - before))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert set(printed.stdout.split()) <= {"muster", "__future__"}


def test_a_trainer_needs_no_package_of_the_client() -> None:
    absent = ("boto3", "botocore", "rich", "typer", "muster.client", "muster.report")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
        "from muster import Algorithm, Context, DiLoCo, MusterError"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_a_users_program_has_no_type_errors(tmp_path: Path) -> None:
    program = Path(__file__).with_name("user_program.py").read_text(encoding="utf-8")
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "names.py").write_text(
        "import muster\n\nprint(" + ", ".join(f"muster.{n}" for n in muster.__all__) + ")\n"
    )
    settings = {"typeCheckingMode": "strict", "include": ["*.py"], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ["node", str(ROOT / "node_modules/pyright/index.js"), "-p", str(tmp_path), "--outputjson"]
    answer = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, timeout=240, check=False
    )
    found = json.loads(answer.stdout)
    assert [(item["file"], item["message"]) for item in found["generalDiagnostics"]] == []
    assert found["summary"]["filesAnalyzed"] == 2


@pytest.mark.parametrize("name", Commands.table)
def test_the_line_of_a_command_is_the_first_of_its_documentation(name: str) -> None:
    row = Commands.table[name]
    module, _, attribute = row.target.partition(":")
    found = getattr(import_module(module), attribute)
    documentation = found.info.help if attribute == "app" else inspect.getdoc(found)
    assert documentation.partition("\n")[0] == row.help
