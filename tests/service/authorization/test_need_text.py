"""The text of the missing right in a refusal."""

from __future__ import annotations

import pytest

from palisade.catalog.permissions import Privilege
from palisade.metastore.requests import FROM_KEY
from palisade.service.authorization.needs import EVERYTHING, Need

SEGMENT = "palisade/segments/records/airlines/2013-01-01T00:00:00.000Z/2014-01-01T00:00:00.000Z/0000000000000001/00000"
"""It was cut off after 64 bytes."""


@pytest.mark.parametrize(
    ("need", "text"),
    [
        (Need(Privilege.READ, b"/a/k"), "read on /a/k"),
        (Need(Privilege.READ, b"\xff\0"), "read on 0xff00"),
        (Need(Privilege.WRITE, b"/a/", b"/a0"), "write on all keys that begin with /a/"),
        (Need(Privilege.READ, b"/a", b"/c"), "read on all keys from /a up to /c"),
        (Need(Privilege.READ, b"/a", FROM_KEY), "read on all keys from /a on"),
        (Need(Privilege.WRITE, SEGMENT.encode()), f"write on {SEGMENT}"),
        (EVERYTHING, "admin on every key"),
    ],
)
def test_need_names_its_keys_as_text(need: Need, text: str) -> None:
    """A prefix read as "'/' up to '0'" (issue 16)."""
    assert str(need) == text
