"""A shared library for Linux, as its ELF file describes it (64 bits, little-endian): elf(5)."""

from __future__ import annotations

import struct
from functools import cached_property

_DYNAMIC, _DYNAMIC_SYMBOLS = 6, 11  # types of sections
_NEEDED = 1  # in the dynamic section
_UNDEFINED = 0


class SharedObject:
    """What a library needs and exports."""

    def __init__(self, content: bytes) -> None:
        assert content[:6] == b"\x7fELF\x02\x01"
        self.content = content

    @property
    def machine(self) -> int:
        """The processor: 62 is x86-64, 183 is arm64."""
        return int(struct.unpack_from("<H", self.content, 18)[0])

    @property
    def exported(self) -> set[str]:
        """The symbols that others can use."""
        return {name for name, section in self._symbols if section != _UNDEFINED}

    @property
    def imported(self) -> set[str]:
        """The symbols that others must have."""
        return {name for name, section in self._symbols if section == _UNDEFINED and name}

    @property
    def needed(self) -> list[str]:
        """The libraries that are loaded with it."""
        names: list[str] = []
        for kind, offset, size, link in self._sections:
            if kind == _DYNAMIC:
                entries = struct.iter_unpack("<qQ", self.content[offset : offset + size])
                names += [self._text(link, value) for tag, value in entries if tag == _NEEDED]
        return names

    @cached_property
    def _sections(self) -> list[tuple[int, int, int, int]]:
        """Type, offset, size, and the section that it refers to."""
        [start] = struct.unpack_from("<Q", self.content, 40)
        size, number = struct.unpack_from("<HH", self.content, 58)
        found = [struct.unpack_from("<IIQQQQI", self.content, start + size * index) for index in range(number)]
        return [(kind, offset, length, link) for _, kind, _, _, offset, length, link in found]

    @cached_property
    def _symbols(self) -> list[tuple[str, int]]:
        """Names, and the sections in which they are."""
        return [
            (self._text(link, name), section)
            for kind, offset, size, link in self._sections
            if kind == _DYNAMIC_SYMBOLS
            for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", self.content[offset : offset + size])
        ]

    def _text(self, section: int, at: int) -> str:
        start = self._sections[section][1] + at
        return self.content[start : self.content.index(b"\0", start)].decode()
