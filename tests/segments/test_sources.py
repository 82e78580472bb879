"""Sources of a segment, none of which is trusted: wrong and truncated responses (issue 3, "Bad input")."""

from __future__ import annotations

import pytest

from palisade.segments.names import Wanted, assignment_key
from palisade.segments.sources import STRANGERS_MAX, Everywhere, SegmentSource, fetch, peers_for
from palisade.segments.verification import Verifier, version_of
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import NotFetched
from tests.support.segment_names import name
from tests.support.segment_world import Stock

DAY = name(1)
ROWS = b"rows\x1e" * 20
WANTED = version_of(ROWS)


def stock(place: str, content: bytes | None) -> Stock:
    made = Stock(place)
    if content is not None:
        made.content[DAY] = content
    return made


@pytest.mark.parametrize("wrong", [b"", ROWS[:-1], ROWS + b"x", b"R" + ROWS[1:]], ids=["none", "half", "more", "other"])
async def test_invalid_content_is_discarded_and_the_next_source_asked(wrong: bytes) -> None:
    first, second = stock("n2", wrong), stock("n3", ROWS)
    assert await fetch(DAY, WANTED, [first, second], Verifier()) == ROWS
    assert first.asked == second.asked == [DAY]


async def test_failed_fetch_names_the_reason_of_each_source() -> None:
    with pytest.raises(NotFetched, match="n2: does not have it; n3: wrong digest sha256") as failed:
        await fetch(DAY, WANTED, [stock("n2", None), stock("n3", b"R" + ROWS[1:])], Verifier())
    assert failed.value.retry
    with pytest.raises(NotFetched, match="no source"):
        await fetch(DAY, WANTED, [], Verifier())


class Assigned(Vault):
    """A vault in which some nodes are to have the segment, in a version."""

    def __init__(self, **versions: Wanted) -> None:
        super().__init__(MemoryBackend())
        self._versions = {assignment_key(node, DAY): wanted for node, wanted in versions.items()}

    def get(self, key: bytes) -> object:  # type: ignore[override]
        wanted = self._versions.get(key)
        return None if wanted is None else type("Item", (), {"value": wanted.to_value()})


def test_assigned_nodes_are_asked_first_then_a_few_others() -> None:
    others = [f"n{number}" for number in range(1, 20)]
    order = peers_for(DAY, WANTED, Assigned(n7=WANTED, n9=version_of(b"old")), others)
    assert order[0] == "n7"
    assert len(order) == 1 + STRANGERS_MAX
    assert order == peers_for(DAY, WANTED, Assigned(n7=WANTED), others[::-1])
    assert len({peers_for(name(day), WANTED, Assigned(), others)[0] for day in range(1, 29)}) > 5


async def test_data_set_is_the_last_source() -> None:
    nodes = {"n2": stock("n2", None), "n3": stock("n3", None)}

    def peer(node: str, address: str) -> SegmentSource:
        assert address == f"{node}:1"
        return nodes[node]

    origin, file, urls = stock("the data set", ROWS), stock("file:///day", None), ["", "file:///day"]
    addresses = {node: f"{node}:1" for node in nodes}
    places = Everywhere(lambda: addresses, peer, origin, {"file:///day": file}.__getitem__, lambda *_: urls.pop(0))
    assert await fetch(DAY, WANTED, places.sources(DAY, WANTED, Assigned(n3=WANTED)), Verifier()) == ROWS
    assert nodes["n2"].asked == nodes["n3"].asked == origin.asked == [DAY]
    assert not file.asked
    assert await fetch(DAY, WANTED, places.sources(DAY, WANTED, Assigned(n3=WANTED)), Verifier()) == ROWS
    assert file.asked == [DAY]
    assert origin.asked == [DAY] * 2
