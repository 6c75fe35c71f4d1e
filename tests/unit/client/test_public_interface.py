"""The names of `muster`: complete, documented, imported only when they are used; what an extra brings."""

import builtins
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib.util import find_spec

import boto3
import pytest
from pydantic import BaseModel

import muster
from muster.client.cli import lazy_group
from muster.client.cli.lazy_group import EXTRAS, CommandOffer, CommandRow, LazyCommand, MissingExtraError, with_offered
from muster.client.cli.program import Commands

# Modules import what their annotations name only where they use it, or for type checkers: users find it here.
NAMES = {"boto3": boto3, **{name: getattr(muster, name) for name in muster.__all__}}
CLASSES = [name for name in muster.__all__ if name != "__version__"]
# Opaque to users: a page is rendered, a rendezvous is passed on.
OPAQUE = {"Page"}
# Trainers use the methods of DiLoCo, and only read or pass on the others.
VALUES = {"Algorithm", "Context", "Metrics", "RoundOutcome", "Spec"}


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


def test_each_public_name_is_that_of_the_module_which_its_import_names() -> None:
    assert set(muster.__all__) <= set(dir(muster))
    for name, module in muster._homes().items():
        assert getattr(muster, name).__module__ == module, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'muster' has no attribute 'Nothing'"):
        muster.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_public_class_is_documented_and_leads_only_to_public_ones() -> None:
    for name in CLASSES:
        kind = getattr(muster, name)
        assert kind.__doc__, name
        assert not kind.__doc__.startswith(f"{name}("), name
        assert not issubclass(kind, Exception) or issubclass(kind, muster.MusterError), name
        if name in OPAQUE | VALUES:
            continue
        for method in public_methods(kind):
            documentation, place = inspect.getdoc(method) or "", f"{name}.{method.__name__}"
            assert documentation or method.__name__ == "__init__", place
            unknown = {error for error in raised(documentation) if not hasattr(builtins, error)}
            assert unknown <= {*muster.__all__}, place
        assert {found.__name__ for found in returned(kind)} <= {*muster.__all__}, name


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_muster_imports_nothing_else_and_a_name_says_which_extra_it_needs() -> None:
    printed = python("before = set(sys.modules); import muster; print(*sorted(set(sys.modules) - before))")
    assert set(printed.split()) <= {"muster", "__future__"}
    absent = ("boto3", "botocore", "rich", "typer", "muster.client", "muster.report")
    python(f"sys.modules.update(dict.fromkeys({absent!r}))\nfrom muster import Algorithm, Context, DiLoCo, MusterError")
    python("sys.modules['boto3'] = None\nfrom muster import Muster\nMuster(region='eu-west-1')")
    said = python(
        "sys.modules['numpy'] = None\nimport muster\ntry: muster.DiLoCo\nexcept ImportError as error: print(error)"
    )
    assert said == "muster.DiLoCo needs the module numpy: run pip install 'muster-train[replica]'\n"


def test_a_command_without_its_extra_is_one_error_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {modules[0] for modules in EXTRAS.values()}
    monkeypatch.setattr(lazy_group, "find_spec", lambda name: None if name in absent else find_spec(name))
    monkeypatch.setattr(lazy_group, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    for command, extra in (("deploy", "deploy"), ("template", "deploy"), ("local", "local")):
        with pytest.raises(MissingExtraError, match=rf"{EXTRAS[extra][0]}.* pip install 'muster-train\[{extra}\]'"):
            LazyCommand(command, Commands.table[command]).make_context(command, [])


def test_the_line_of_a_command_in_the_help_is_the_first_of_its_own_help() -> None:
    for name, row in Commands.table.items():
        command = LazyCommand(name, row).make_context(name, [], resilient_parsing=True).command
        assert command.help.splitlines()[0] == row.help, name


def test_commands_of_options_follow_the_one_that_they_name_and_replace_none() -> None:
    row, table = CommandRow("module:name", "Do it."), dict.fromkeys(("plan", "launch"), CommandRow("core:name", "Do."))
    offered = [CommandOffer({"recipe": row}, after="plan"), CommandOffer({"sweep": row, "grid": row}, after="plan")]
    assert list(with_offered(table, offered)) == ["plan", "recipe", "sweep", "grid", "launch"]
    for wrong in (CommandOffer({"launch": row}, after="plan"), CommandOffer({"new": row}, after="recipe")):
        with pytest.raises(ValueError, match="cannot add the commands"):
            with_offered(table, [offered[0], wrong])
