"""Generated recipes: trees with references of every form, and scalars on the edge between number and text."""

import random
from collections.abc import Iterator
from typing import Any

import yaml

NAMES = ("alpha", "beta", "lr", "n", "model-type", "x_1", "Steps")
NUMBERS = (0, 1, 2, 3, 7, 8, 2.5, -4)
OTHERS: tuple[object, ...] = (12, 1e-05, -0.0, 1e20, True, False, None, "", "text", "a b", "8", "x.y", "é")
DEFAULTS = ("1", "2.5", "true", "null", "text", "'quoted, text'", '"double: text"', "1e-3", "", "a b", "s3://b/k")
_PARTS = (
    *("0", "1", "7", "9", ".", "e", "E", "+", "-", "_", "x", "b", "o", ":", "~"),
    *("y", "n", "inf", "nan", "Null", "yes"),
)
_WHOLE = (
    *("", "true", "False", "ON", "off", "null", "~", "0x1F", "0b101", "1e5", "1.5E-3", ".5", "5.", "-.5", "1_000"),
    "012",
)


def recipe(seed: int) -> str:
    """A recipe with references, as YAML: about half of them refer to something that is there."""
    return yaml.safe_dump(_Tree(random.Random(seed)).document, sort_keys=False, allow_unicode=True)  # noqa: S311


def scalars(seed: int, count: int) -> Iterator[str]:
    """Documents of one value each, which begins like a number, a word of YAML, or text."""
    draw = random.Random(seed)  # noqa: S311
    for _ in range(count):
        parts = [draw.choice(_PARTS) for _ in range(draw.randint(1, 6))]
        token = draw.choice(_WHOLE) if draw.random() < 0.2 else "".join(parts)
        kind = draw.random()
        if kind < 0.7:
            yield f"a: {token}\n"
        elif kind < 0.8:
            yield f"a: [{token}, {token}]\n"
        elif kind < 0.9:
            yield f"a: '{token}'\nb: \"{token}\"\n"
        else:
            yield f"a:\n  - {token}\n  - b: {token}\n"


class _Tree:
    """A document that grows from random draws."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.document: dict[str, Any] = self._mapping(0)
        self._paths = list(_paths(self.document, ()))
        self._numbers = [path for path in self._paths if type(_at(self.document, path)) in (int, float)]
        for path in self._paths:
            if self._draw.random() < 0.4 and not isinstance(_at(self.document, path), dict | list):
                _set(self.document, path, self._interpolation(path, 0))

    def _mapping(self, depth: int) -> dict[str, Any]:
        names = self._draw.sample(NAMES, self._draw.randint(2, 4))
        return {name: self._value(depth + 1) for name in names}

    def _value(self, depth: int) -> Any:
        kind = self._draw.random()
        if depth < 4 and kind < 0.35:
            return self._mapping(depth)
        if depth < 4 and kind < 0.45:
            return [self._value(depth + 1) for _ in range(self._draw.randint(1, 3))]
        return self._draw.choice(NUMBERS if kind < 0.7 else OTHERS)

    def _interpolation(self, place: tuple[str | int, ...], depth: int) -> str:
        kind = self._draw.randint(0, 9)
        if kind < 4:
            return "${" + self._reference(place) + "}"
        if kind == 4:
            before, after = self._draw.choice(("a-", "", "$", "x: ")), self._draw.choice(("", "/b", " c"))
            return f"{before}${{{self._reference(place)}}}{after}"
        if kind < 7:
            return "${oc.select:" + self._reference(place) + self._default(place, depth) + "}"
        if kind == 7 and self._numbers:
            name = self._draw.choice(("multiply", "divide_ceil", "divide_floor"))
            return f"${{{name}:{self._number(depth)},{self._draw.choice((2, 3, 0.5, -4))}}}"
        if kind == 8 and self._numbers:
            return "${add:" + ",".join(self._number(depth) for _ in range(self._draw.randint(1, 3))) + "}"
        return self._draw.choice(("$ {no}", "${oc.create:[1, a, 2.5]}", "${oc.create:{k: v, n: 1}}"))

    def _number(self, depth: int) -> str:
        if depth < 2 and self._draw.random() < 0.3:
            return f"${{add:{self._number(depth + 1)},1}}"
        if self._draw.random() < 0.5:
            return str(self._draw.choice((1, 2, 2.5, -3)))
        return "${" + _absolute(self._draw.choice(self._numbers)) + "}"

    def _default(self, place: tuple[str | int, ...], depth: int) -> str:
        kind = self._draw.random()
        if kind < 0.2:
            return ""
        if kind < 0.3 and depth < 2:
            return "," + self._interpolation(place, depth + 1)
        return self._draw.choice((",", ", ")) + self._draw.choice(DEFAULTS)

    def _reference(self, place: tuple[str | int, ...]) -> str:
        # Mostly to what comes before, so that most recipes have no cycle.
        before = [path for path in self._paths[: self._paths.index(place)] if path != place[: len(path)]]
        path = self._draw.choice(before if before and self._draw.random() < 0.95 else self._paths)
        if self._draw.random() < 0.03:
            path = (*path[:-1], "missing")
        kind = self._draw.random()
        if kind < 0.5:
            return _absolute(path)
        if kind < 0.6:
            return f"{path[0]}" + "".join(f"[{part}]" for part in path[1:])
        shared = 0
        while shared < min(len(path), len(place)) - 1 and path[shared] == place[shared]:
            shared += 1
        return "." * (len(place) - shared) + _absolute(path[shared:])


def _absolute(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def _paths(value: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*above, key)
        if isinstance(item, dict | list):
            yield from _paths(item, (*above, key))


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def _set(value: Any, path: tuple[str | int, ...], item: object) -> None:
    _at(value, path[:-1])[path[-1]] = item
