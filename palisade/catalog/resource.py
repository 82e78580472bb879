"""A resource: a definition that nodes execute or obey, such as a function, a trigger, a plugin, a quota or a system
status (seed 000, Tier B). Pure.

The catalog stores the definition and does not interpret it. Its change is released to every node before it is answered,
as any other of the catalog, and a fenced node refuses to serve it: whatever executes resources reads them through the
vault, and so stops executing what was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from palisade.catalog import keys
from palisade.catalog.row_format import a_path, from_bytes, text_up_to, to_bytes

DEFINITION_CHARACTERS_MAX = 65_536
read_path = a_path(2, 2)
read_definition = text_up_to(DEFINITION_CHARACTERS_MAX)


@dataclass(frozen=True, slots=True)
class Resource:
    """`path`: kind and name, joined by a dot. `definition`: text in any format, for example JSON."""

    path: str
    definition: str

    @property
    def key(self) -> bytes:
        return keys.at(keys.RESOURCES, self.path)

    def to_bytes(self) -> bytes:
        return to_bytes({"path": self.path, "definition": self.definition})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> Resource:
        """Raises DamagedRow."""

        def read(value: Mapping[str, object]) -> Resource:
            return Resource(read_path(value["path"], "path"), read_definition(value["definition"], "definition"))

        return from_bytes(key, packed, read)
