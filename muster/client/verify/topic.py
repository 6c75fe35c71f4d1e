"""One subject of a verification: its facts are gathered, then judged. What cannot be asked is unchecked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from muster.client.errors import ClientError
from muster.client.verify.asking import UncheckedError
from muster.client.verify.verification import Check, unchecked

_Facts = TypeVar("_Facts")


def with_clean_up(checks: Iterator[Check], clean_up: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """`checks`, then those of `clean_up`, also where making the former raises an error, which is raised again.

    An interruption is left to the caller, who is asked nothing after it.
    """
    try:
        yield from checks
    except Exception:
        yield from clean_up()
        raise
    yield from clean_up()


@dataclass(frozen=True)
class Topic(Generic[_Facts]):
    """`judge` is pure; `gather` calls AWS. `names` are those of the checks, where none of them can be made."""

    doing: str
    names: tuple[str, ...]
    gather: Callable[[], _Facts]
    judge: Callable[[_Facts], Iterator[Check]]

    def checks(self) -> Iterator[Check]:
        """Every check of the subject."""
        try:
            facts = self.gather()
        except UncheckedError as error:
            yield from (unchecked(name, str(error), error.remedy) for name in self.names)
        except ClientError as error:
            yield from (unchecked(name, str(error)) for name in self.names)
        else:
            yield from self.judge(facts)
