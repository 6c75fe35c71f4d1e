"""A settings file completed with the keys that only the deployed stack has; its own lines and comments stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from muster.contract.errors import ConfigurationError
from muster.infra.settings.settings_file import Tables
from muster.infra.settings.stack_settings import NAMED_TABLES
from muster.infra.settings.toml_text import toml_text


def completed(text: str, kept: Tables) -> str:
    """`text` with the keys of `kept`, none of which it sets.

    Raises:
        ConfigurationError: the file's form leaves no place for them; the message holds the lines to add.
    """
    wanted = _merged(tomllib.loads(text), kept)
    lines = text.splitlines()
    appended: dict[str, Mapping[str, Any]] = {}
    for table, keys in kept.items():
        header = next(
            (n for n, line in enumerate(lines) if re.fullmatch(rf"\s*\[\s*{table}\s*\]\s*(#.*)?", line)), None
        )
        if header is None or table in NAMED_TABLES:
            appended[table] = keys
        else:
            lines[header + 1 : header + 1] = toml_text({table: keys}).splitlines()[1:]
    parts = ["\n".join(lines).strip("\n"), toml_text(appended).strip("\n")]
    result = "\n\n".join(part for part in parts if part) + "\n"
    try:
        fits = tomllib.loads(result) == wanted
    except tomllib.TOMLDecodeError:
        fits = False
    if not fits:
        message = f"The file sets some of these tables in another form. Add these lines to it:\n{toml_text(kept)}"
        raise ConfigurationError(message)
    return result


def _merged(document: Mapping[str, Any], kept: Tables) -> dict[str, Any]:
    return {**document, **{table: {**document.get(table, {}), **keys} for table, keys in kept.items()}}
