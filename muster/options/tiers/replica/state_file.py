"""One stored inner state: a header of fixed size, then the state. The same bytes in every tier.

The header says whose state it is and from where in the training, and has a checksum over itself and all that follows:
a state that is torn, mixed or another's is noticed, and the one before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from xxhash import xxh3_128_hexdigest

from muster.contract.document import StoredDocument
from muster.contract.errors import DocumentError
from muster.contract.run.round_values import ROUND_MAX
from muster.replica.frontends.phase_states import StateId
from muster.replica.states.state_buffer import Bytes, UnusableStateError

HEADER_BYTES = 1024
STEP_MAX = 99_999_999  # eight digits in a name


@dataclass(frozen=True)
class Owner:
    """Whose state it is: a process of a replica of a lineage. Each stack has rendezvous of its own."""

    run: str
    rendezvous: str
    rank: int
    part: int
    parts: int


class StateHeader(StoredDocument):
    """The header of a stored state."""

    run: str
    rendezvous: str = Field(description="its URI")
    rank: int = Field(ge=0)
    part: int = Field(ge=0, description="the process of the replica")
    parts: int = Field(ge=1)
    round: int = Field(ge=0, le=ROUND_MAX)
    step: int = Field(ge=0, le=STEP_MAX)
    epoch: int = Field(ge=1, description="the claim of the process that has saved it")
    tree: int = Field(ge=0, description="bytes of the tree, which lies before the arrays")
    bytes: int = Field(ge=0, description="all that follows the header")
    checksum: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = Field(
        default="", description="XXH3-128 of this header without it, and of what follows"
    )

    @property
    def id(self) -> StateId:
        """From where in the training it is."""
        return StateId(self.round, self.step)

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return Owner(self.run, self.rendezvous, self.rank, self.part, self.parts)

    def summed(self, rest: Bytes) -> str:
        """The checksum that belongs to this header before `rest`."""
        plain = self.model_copy(update={"checksum": ""}).to_json()
        return xxh3_128_hexdigest(plain + xxh3_128_hexdigest(rest).encode())


def seal(body: memoryview, header: StateHeader) -> None:
    """Write the header, with its checksum, into the room at the start of `body`."""
    sealed = header.model_copy(update={"checksum": header.summed(body[HEADER_BYTES:])})
    text = sealed.to_json().rstrip(b"\n")
    if len(text) >= HEADER_BYTES:
        message = f"the header has {len(text)} bytes, at most {HEADER_BYTES - 1} fit"
        raise UnusableStateError(message)
    body[:HEADER_BYTES] = text.ljust(HEADER_BYTES - 1) + b"\n"


def opened(body: Bytes, owner: Owner, found: StateId, epoch: int) -> StateHeader:
    """The header of a whole state of `owner`, which was found as that of `found`.

    Args:
        epoch: the claim of this process: a state of a later one belongs to a process that has fenced this one.

    Raises:
        UnusableStateError: it is damaged, or another's.
    """
    view = memoryview(body)
    if len(view) < HEADER_BYTES:
        message = f"it has {len(view)} bytes, a header takes {HEADER_BYTES}"
        raise UnusableStateError(message)
    try:
        header = StateHeader.from_json(bytes(view[:HEADER_BYTES]), "it")
    except DocumentError as error:
        raise UnusableStateError(str(error)) from None
    if header.owner != owner:
        message = f"it belongs to {header.owner}, not to {owner}"
        raise UnusableStateError(message)
    if header.id != found:
        message = f"it is of round {header.round}, step {header.step}, and was stored as that of {tuple(found)}"
        raise UnusableStateError(message)
    if header.epoch > epoch:
        message = f"claim {header.epoch} has saved it, and this process holds claim {epoch}"
        raise UnusableStateError(message)
    if header.bytes != len(view) - HEADER_BYTES:
        message = f"{len(view) - HEADER_BYTES} bytes follow its header, which says {header.bytes}"
        raise UnusableStateError(message)
    if header.checksum != header.summed(view[HEADER_BYTES:]):
        message = "its checksum does not match"
        raise UnusableStateError(message)
    return header
