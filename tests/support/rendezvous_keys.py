"""Objects of a rendezvous by kind and round, whatever rank or shard they belong to."""

from fnmatch import fnmatchcase


def of_round(kind: str, round_: int) -> str:
    """A pattern (see `is_like`) of the objects of a kind (keys.CONTRIBUTIONS, ...) that belong to a round."""
    return f"{kind}*/{round_:08d}"


def round_of(key: str) -> int:
    """The round that an object belongs to."""
    return int(key.rpartition("/")[2].partition("-")[0])


def is_like(text: str, pattern: str) -> bool:
    """Whether `text` begins with `pattern`, in which a star stands for anything."""
    return fnmatchcase(text, f"{pattern}*")
