"""YAML without surprises: a key appears once, there are no aliases and no dates, and 1e-4 is a number."""

from __future__ import annotations

import re
from collections.abc import Hashable

import yaml


class _Loader(yaml.SafeLoader):
    """SafeLoader without the surprising rules of YAML 1.1."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # With aliases a few lines can expand to gigabytes.
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases (*name) are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:bool":
                # YAML 1.1 reads `on` as true; a key is a name.
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                problem = f"the key {key!r} is not a string; write it in quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen:
                problem = f"the key {key!r} appears twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 requires a dot and a sign, as in 1.0e+4; JSON and Python do not.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def load_yaml(text: str) -> object:
    """The value of a YAML (or JSON) document.

    Raises:
        ValueError: with the line, the column and the problem there.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        message = f"{where}{error.problem}"
        raise ValueError(message) from None
    except (yaml.YAMLError, RecursionError) as error:
        message = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise ValueError(message) from None
