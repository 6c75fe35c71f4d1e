"""Values as JSON that keeps what JSON loses: keys that are no text, and the difference between 1 and 1.0."""

from typing import Any


def encoded(value: object) -> Any:
    """`value` as JSON: a mapping is `{"map": [[key, value], ...]}`, a float `{"float": "1e-05"}`."""
    if isinstance(value, dict):
        return {"map": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    if isinstance(value, float):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    return {"other": f"{type(value).__name__} {value!r}"}


def decoded(value: Any) -> Any:
    """What `encoded` was given; a value of another type is a text that names it."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "map":
        return {decoded(key): decoded(item) for key, item in held}
    return float(held) if kind == "float" else held


def leaves(value: object, path: str = "") -> dict[str, object]:
    """The leaves of a document by their paths. An empty mapping or list is a leaf."""
    if isinstance(value, dict) and value:
        return {at: leaf for key, item in value.items() for at, leaf in leaves(item, _joined(path, key)).items()}
    if isinstance(value, list) and value:
        return {at: leaf for place, item in enumerate(value) for at, leaf in leaves(item, f"{path}[{place}]").items()}
    return {path: value}


def _joined(path: str, key: object) -> str:
    shown = key if isinstance(key, str) else f"({key!r})"
    return f"{path}.{shown}" if path else str(shown)


def same(left: object, right: object) -> bool:
    """Whether two leaves are equal, and of one type: 1 is neither 1.0 nor true. NaN equals itself."""
    if type(left) is not type(right):
        return False
    return left == right or (left != left and right != right)  # noqa: PLR0124 - NaN
