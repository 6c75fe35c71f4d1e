"""Imports that should not be: circles over however many steps, and imports of options from the core."""

from __future__ import annotations

from collections.abc import Mapping

from bench.structure.sources import Finding, Sources, imported_modules, module_name, product_modules


def import_cycles(sources: Sources) -> list[Finding]:
    """Each circle of modules of the product, imports inside of functions and for types included."""
    paths = {module_name(path): path for path, _ in product_modules(sources)}
    modules = frozenset(paths)
    graph = {module_name(path): imported_modules(text, modules) for path, text in product_modules(sources)}
    return [
        Finding(paths[min(circle)], 1, " ".join(sorted(circle)), len(circle))
        for circle in _components(graph)
        if len(circle) > 1
    ]


def imported_options(sources: Sources) -> list[Finding]:
    """Each module of an option that a module of the core imports; `muster/*.py` are the options' public names."""
    modules = frozenset(module_name(path) for path, _ in product_modules(sources))
    options = {name for name in modules if name.startswith("muster.options.")}
    core = ((path, text) for path, text in product_modules(sources) if not path.startswith("muster/options/"))
    return [
        Finding(path, 1, name)
        for path, text in core
        if path.count("/") > 1 or not path.startswith("muster/") or path == "muster/__init__.py"
        for name in sorted(imported_modules(text, modules) & options)
    ]


def _components(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components, by Tarjan's algorithm without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []
    for start in graph:
        if start in number:
            continue
        work = [(start, iter(graph[start]))]
        number[start] = low[start] = len(number)
        stack.append(start)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(graph[other])))
                    break
                if other in stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    place = stack.index(node)
                    found.append(set(stack[place:]))
                    del stack[place:]
    return found
