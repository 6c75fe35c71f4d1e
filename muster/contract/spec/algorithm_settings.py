"""The settings of an algorithm by name, and the type of each: of a spec with `hook`, and of `Algorithm` itself."""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS: Mapping[str, type] = {
    "sync_every": int,
    "learning_rate": float,
    "momentum": float,
    "fragments": int,
    "delay": int,
    "alpha": float,
    "eager": bool,
    "codec": str,
    "far_codec": str,
    "decay_rounds": int,
    "final_learning_rate": float,
    "momentum_rounds": int,
    "average": str,
    "restart_rounds": int,
    "feedback_decay": float,
    "clip_norm": float,
    "outlier_factor": float,
}
"""The fields of `muster.replica.algorithms.algorithm.Algorithm`; a test holds the two to each other."""
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def allowed_instead(name: str, value: object) -> str | None:
    """What the setting `name` may be, in words, if `value` has another type; None if it has the right one."""
    kind = SETTINGS[name]
    is_right = isinstance(value, (int, float) if kind is float else kind)
    # Python's true and false are whole numbers, too.
    return None if is_right and (kind is bool or not isinstance(value, bool)) else _WORDS[kind]
