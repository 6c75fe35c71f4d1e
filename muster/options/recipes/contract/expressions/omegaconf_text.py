"""Text with interpolations as OmegaConf reads it: its grammar, without its resolvers, within bounds.

Imported for such text alone: OmegaConf and its parser take a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any

from omegaconf.errors import GrammarParseError
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser as Grammar
from omegaconf.grammar_parser import parse
from omegaconf.grammar_visitor import GrammarVisitor

from muster.contract.text import shortened

_NESTING_MAX = 32
_SHOWN = 80


class UnreadableTextError(ValueError):
    """Text that begins an interpolation and is none, or puts a mapping into a text. It says what is wrong."""


@lru_cache(maxsize=1_024)
def _tree(text: str) -> Any:
    depth = 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if depth > _NESTING_MAX:
            message = f"more than {_NESTING_MAX} levels of nesting"
            raise UnreadableTextError(message)
    try:
        return parse(text)
    except GrammarParseError as error:
        words = "a closing } is missing" if depth > 0 else shortened(str(error), _SHOWN)
        message = f"an interpolation that cannot be read: {words}"
        raise UnreadableTextError(message) from None


def read_text(text: str, refer: Callable[[str], Any], call: Callable[[str, tuple[Any, ...]], Any]) -> Any:
    """The value of a text: `refer` gives what a path stands for, and `call` what a resolver gives.

    Raises:
        UnreadableTextError: OmegaConf cannot read it.
    """

    def refer_to(key: Any, _: object) -> Any:
        # OmegaConf 2.4 says more about a path than its text, which is all that 2.3 says.
        return refer(getattr(key, "raw", key))

    visitor = _Visitor(refer_to, lambda name, args, args_str: call(name, args), None)  # noqa: ARG005 - its names
    return visitor.visit(_tree(text))


class _Visitor(GrammarVisitor):
    def visitInterpolation(self, ctx: Any) -> Any:  # noqa: N802 - the library's name
        value = super().visitInterpolation(ctx)
        above = ctx.parentCtx
        if isinstance(above, Grammar.ConfigKeyContext | Grammar.ResolverNameContext) and not isinstance(value, str):
            message = "an interpolation as a part of a path that is no text"
            raise UnreadableTextError(message)
        within = above.getChildCount() > 1 or isinstance(above.parentCtx, Grammar.QuotedValueContext)
        if within and isinstance(value, dict | list):
            message = f"{'a mapping' if isinstance(value, dict) else 'a list'} as a part of a text"
            raise UnreadableTextError(message)
        return value

    def visitDictKey(self, ctx: Any) -> str:  # noqa: N802
        return str(ctx.getText())

    def visitSequence(self, ctx: Any) -> Generator[Any, None, None]:  # noqa: N802
        """The library warns of each value that is left out."""
        before = True
        for child in ctx.getChildren():
            comma = not isinstance(child, Grammar.ElementContext)
            if not comma:
                yield self.visitElement(child), ""
            elif before:
                yield "", ""
            before = comma
        if before:
            yield "", ""
