"""docs/python.md: every public name, from the sources. Nothing is imported, so no framework must be installed."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEAD = """# Python

*Generated from the sources by `python -m docs.generate`; a test checks that it is up to date.*

`pip install` brings one package, `muster`. Its names load when they are used, so `import muster` takes less than a
millisecond, and a container needs only the packages of what it uses.

| you write | you import from |
|---|---|
| a program or a notebook that starts and watches runs | [`muster`](#starting-and-watching-runs) |
| a program that resolves and compares recipes | [`muster.recipes`](#musterrecipes) |
| a trainer in NumPy, JAX or anything with DLPack | [`muster`](#trainers) |
| a trainer in PyTorch | [`muster.torch`](#mustertorch) |
| a trainer for Hugging Face's `Trainer` | [`muster.huggingface`](#musterhuggingface) |
| a trainer in Lightning | [`muster.lightning`](#musterlightning) |
| a trainer with torchft's algorithms | [`muster.torchft`](#mustertorchft) |
| a program that used an executor of SageMaker jobs | [`muster.executor`](#musterexecutor) |
| tests of your own with the embedded cloud | [`muster.local`](#musterlocal) |
"""

_CLIENTS = ("muster.client.", "muster.contract.", "muster.report.")
_FACES = ("recipes", "torch", "huggingface", "lightning", "torchft", "executor", "local")
_SECTIONS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Raises", "Yields": "Yields"}
_ITEM = re.compile(r"^(\*{0,2}[\w., |]+?): (.*)$")


@dataclass(frozen=True)
class _Public:
    """A public name: its definition, and the module that has it."""

    name: str
    module: str
    node: ast.ClassDef | ast.FunctionDef | ast.Assign

    @property
    def is_error(self) -> bool:
        return self.name.endswith("Error")


def python_reference(root: Path) -> str:
    """The text of docs/python.md."""
    names = [_find(root, name, module) for name, module in _imports(root / "muster" / "__init__.py")]
    shown = [found for found in names if not found.is_error]
    clients = [found for found in shown if found.module.startswith(_CLIENTS)]
    main = [found for found in clients if found.module == "muster.client.sdk"]
    answers = [found for found in clients if found not in main]
    parts = [_HEAD, "## Starting and watching runs\n", *(_definition(found) for found in main)]
    parts += ["## What they answer\n", *(_definition(found) for found in answers)]
    parts += ["## Trainers\n", *(_definition(found) for found in shown if found not in clients)]
    parts += ["## Errors\n", "All can be imported from `muster`.\n", _error_table(names)]
    for face in _FACES:
        parts.append(_face(root, face, {found.name: found.module for found in names}))
    return "\n".join(parts)


def _face(root: Path, name: str, known: dict[str, str]) -> str:
    """The section of one of the further modules; what `muster` has, too, is only named."""
    path = root / "muster" / f"{name}.py"
    path = path if path.exists() else root / "muster" / name / "__init__.py"
    intro = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    found = [_find(root, *item) for item in _imports(path)]
    own = [item for item in found if known.get(item.name) != item.module]
    same = [item.name for item in found if item not in own]
    also = f"Also here: {', '.join(f'[`{item}`](#{item.lower()})' for item in same)}.\n" if same else ""
    parts = [f"## muster.{name}\n", f"{intro}\n", also, *(_definition(item, f"muster.{name}.") for item in own)]
    return "\n".join(part for part in parts if part)


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """The public names that a module imports from Muster, each with the module that it comes from."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("muster."):
            for alias in node.names:
                # Without a list they are those that are imported for others, under their own names.
                if alias.name in listed[0] if listed else alias.asname == alias.name:
                    yield alias.name, node.module


def _find(root: Path, name: str, module: str) -> _Public:
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    if not path.exists():
        path = root.joinpath(*module.split("."), "__init__.py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            node.body[1:1] = _inherited(root, node, body)
            return _Public(name, module, node)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _Public(name, module, node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return _Public(name, module, node)
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _find(root, name, node.module or "")
    message = f"{module} does not define {name}"
    raise LookupError(message)


def _inherited(root: Path, node: ast.ClassDef, body: list[ast.stmt]) -> list[ast.stmt]:
    """The fields of the one model that a model is based on; those of several are a page of their own (docs/spec.md)."""
    imports = [item for item in body if isinstance(item, ast.ImportFrom) and item.module != "muster.contract.document"]
    modules = {alias.name: item.module or "" for item in imports for alias in item.names}
    bases = [base for base in map(ast.unparse, node.bases) if modules.get(base, "").startswith("muster.")]
    found = _find(root, bases[0], modules[bases[0]]).node if len(bases) == 1 else None
    return [item for item in found.body if isinstance(item, ast.AnnAssign)] if isinstance(found, ast.ClassDef) else []


def _definition(found: _Public, prefix: str = "") -> str:
    """The section of a class or function."""
    node = found.node
    title = f"### {prefix}{found.name}\n"
    if isinstance(node, ast.Assign):
        return f"{title}\n```python\n{ast.unparse(node)}\n```\n"
    if isinstance(node, ast.FunctionDef):
        return f"{title}\n{_signature(node)}\n{_prose(ast.get_docstring(node))}"
    parts = [title, _prose(ast.get_docstring(node))]
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is not None:
        parts += [_signature(init, found.name), _prose(ast.get_docstring(init))]
    parts.append(_fields(node))
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")]
    for method in methods:
        decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
        if any("validator" in decorator or "serializer" in decorator for decorator in decorators):
            continue
        heading = f"#### {found.name}.{method.name}\n"
        parts += [heading, _signature(method), _prose(ast.get_docstring(method))]
    return "\n".join(part for part in parts if part)


def _signature(node: ast.FunctionDef, name: str | None = None) -> str:
    """The signature as a code block, one parameter a line where one line is too long; without `self`."""
    if any(ast.unparse(decorator) in {"property", "cached_property"} for decorator in node.decorator_list):
        return f"```python\n{node.name}: {ast.unparse(node.returns) if node.returns else ''}\n```\n"
    arguments = ast.parse("def f(): ...").body[0].args  # type: ignore[attr-defined]
    arguments.__dict__.update(node.args.__dict__)
    arguments.args = [item for item in node.args.args if item.arg not in {"self", "cls"}]
    parameters = [_spaced(item) for item in _split(ast.unparse(arguments))]
    inside = ", ".join(parameters)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and name is None else ""
    line = f"{name or node.name}({inside}){returns}"
    if len(line) > 100:
        broken = ",\n    ".join(parameters)
        line = f"{name or node.name}(\n    {broken},\n){returns}"
    return f"```python\n{line}\n```\n"


def _spaced(parameter: str) -> str:
    """With spaces around the `=` behind a type, as it is usually written."""
    name, colon, rest = parameter.partition(": ")
    kind, equals, default = rest.rpartition("=")
    return f"{name}: {kind} = {default}" if colon and equals else parameter


def _split(inside: str) -> list[str]:
    """Parameters, split at the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(inside):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(inside[start:index].strip())
            start = index + 1
    return [*parts, inside[start:].strip()]


def _fields(node: ast.ClassDef) -> str:
    """The table of a data class's, model's or enumeration's members."""
    rows = []
    for index, item in enumerate(node.body):
        below = node.body[index + 1] if index + 1 < len(node.body) else None
        meaning = (
            below.value.value
            if isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
            else ""
        )
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith(("_", "model_config")):
            kind = ast.unparse(item.annotation)
            if kind.startswith("ClassVar"):
                continue
            rows.append((ast.unparse(item.target), _plain_type(kind), meaning or _description(item.value)))
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
            name = ast.unparse(item.targets[0])
            if name.isupper():
                rows.append((name, f'"{item.value.value}"' if isinstance(item.value.value, str) else "", meaning))
    if not rows:
        return ""
    cells = [f"| `{name}` | {_code(kind)} | {_one_line(meaning)} |" for name, kind, meaning in rows]
    return "\n".join(["| name | type or value | meaning |", "|---|---|---|", *cells]) + "\n"


def _plain_type(kind: str) -> str:
    """A type without the constraints that pydantic checks."""
    tree = ast.parse(kind, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "Annotated" and isinstance(tree.slice, ast.Tuple):
        return ast.unparse(tree.slice.elts[0])
    return kind


def _description(value: ast.expr | None) -> str:
    """What `Field(description=...)` says."""
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg == "description":
                try:
                    return str(ast.literal_eval(keyword.value))
                except ValueError:
                    return ""
    return ""


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _prose(docstring: str | None) -> str:
    """A docstring as Markdown: its indented parts are code, its sections are lists."""
    if not docstring:
        return ""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", docstring):
        head, _, rest = block.partition("\n")
        section = head.rstrip(":") if head.endswith(":") else ""
        if section in _SECTIONS:
            blocks.append(f"{_SECTIONS[section]}:")
            blocks.append("\n".join(_items(textwrap.dedent(rest))))
        elif block.startswith("    "):
            blocks.append(f"```python\n{textwrap.dedent(block)}\n```")
        else:
            blocks.append(textwrap.fill(" ".join(block.split()), 120, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(blocks) + "\n"


def _items(text: str) -> Iterator[str]:
    """The items of a section; what is indented belongs to the item above."""
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line)
    for item in items:
        found = _ITEM.match(item)
        yield f"- `{found[1]}`: {found[2]}" if found else f"- {item}"


def _error_table(names: list[_Public]) -> str:
    rows = []
    for found in names:
        if found.is_error and isinstance(found.node, ast.ClassDef):
            first = (ast.get_docstring(found.node) or "").partition("\n\n")[0]
            bases = ", ".join(f"`{ast.unparse(base)}`" for base in found.node.bases)
            rows.append(f"| `{found.name}` | {bases} | {_one_line(first)} |")
    return "\n".join(["| error | is a | when |", "|---|---|---|", *sorted(rows)]) + "\n"
