"""The codecs by name."""

from __future__ import annotations

import re

from muster.replica.codecs.base import Codec
from muster.replica.codecs.grouped import Int4, Int8
from muster.replica.codecs.plain import Bf16, Fp16, Fp32
from muster.replica.codecs.sparse import KEPT_MAX, KEPT_MIN, TopK

FP32 = Fp32()
_CODECS: dict[str, Codec] = {codec.name: codec for codec in (FP32, Bf16(), Fp16(), Int8(), Int4())}
_TOPK = re.compile(r"topk2-([1-9][0-9]{1,2})")


def codec_named(name: str) -> Codec:
    """The codec `name`.

    Raises:
        ValueError: there is no such codec; lists those that exist.
    """
    if name in _CODECS:
        return _CODECS[name]
    match = _TOPK.fullmatch(name)
    kept = int(match[1]) if match else 0
    if not KEPT_MIN <= kept <= KEPT_MAX or kept & (kept - 1):
        message = (
            f"codec is {name!r}; allowed: {', '.join(_CODECS)}, "
            f"and topk2-K with K a power of two from {KEPT_MIN} to {KEPT_MAX}."
        )
        raise ValueError(message)
    return TopK(kept)
