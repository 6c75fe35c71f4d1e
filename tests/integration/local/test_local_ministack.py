"""What we rely on in MiniStack beyond its public interface. Look here, and at docs/local.md, on an upgrade."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import ministack

import muster.local

HERE = Path(muster.local.__file__).parent


def names_of_ministack(tree: ast.Module) -> set[tuple[str, str]]:
    """Modules of MiniStack, and the names in them that a file of ours imports, calls or replaces."""
    modules: dict[str, str] = {}
    found: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ministack"):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if find_spec(node.module or "") is not None and _is_module(module):
                    modules[alias.asname or alias.name] = module
                else:
                    found.add((node.module or "", alias.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found.add((modules[node.value.id], node.attr))
    return found


def replaced_names(tree: ast.Module) -> set[tuple[str, str]]:
    """The names of modules of MiniStack to which a file of ours gives another value."""
    targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return names_of_ministack(ast.Module([*imports, *(ast.Expr(target) for target in targets)], [])) - {
        (node.module or "", alias.name) for node in imports for alias in node.names
    }


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_what_we_touch_is_there() -> None:
    used = {name for file in HERE.rglob("*.py") for name in names_of_ministack(ast.parse(file.read_text()))}
    assert len(used) > 80
    assert sorted(name for name in used if not hasattr(importlib.import_module(name[0]), name[1])) == []


def test_no_module_keeps_what_another_had_before_it_was_replaced() -> None:
    replaced = {name for file in HERE.rglob("*.py") for name in replaced_names(ast.parse(file.read_text()))}
    assert len(replaced) > 30
    kept = []
    for file in Path(ministack.__file__).parent.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            names = [(node.module or "", one.name) for one in node.names] if isinstance(node, ast.ImportFrom) else []
            own = {name for module, name in replaced if module.endswith(f".{file.stem}")}
            kept += [(file.stem, name) for module, name in names if (module, name) in replaced and name not in own]
    # Policies of IoT, which no stack of Muster has.
    assert kept == [("iot", "parse_policy_document")]
