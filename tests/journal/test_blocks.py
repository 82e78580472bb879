"""The file format: what was written is read back; a torn end is removed; damage of synced data is refused (M9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.journal import blocks as block_format
from palisade.journal.blocks import (
    BLOCK_HEADER_BYTES,
    FILE_HEADER_BYTES,
    SECTOR_BYTES,
    UNSYNCED_BYTES_MAX,
    JournalBlock,
    JournalEnd,
    check_torn,
    file_header,
    make_block,
    read_block,
    read_blocks,
    read_file_header,
    scan,
    stored_end,
)
from palisade.journal.errors import JournalDamaged, NewerFormat

NAME = "f"
IN_ANY_FILE = pytest.mark.parametrize("reserved", [b"", bytes(10_000)], ids=["", "reserved space"])
CONTENTS = st.lists(st.lists(st.binary(max_size=700), min_size=1, max_size=4), min_size=1, max_size=5)


def file_of(batches: list[list[bytes]]) -> tuple[bytes, list[JournalBlock]]:
    end, blocks = JournalEnd(), []
    for contents in batches:
        blocks.append(make_block(end, 1, contents))
        end = blocks[-1].end
    return file_header(JournalEnd()) + b"".join(block.data for block in blocks), blocks


def repaired(data: bytes, *, replica: bool = False) -> list[JournalBlock]:
    """The blocks that a start keeps. Raises JournalDamaged."""
    found = list(scan(data, NAME, JournalEnd()))
    offset = found[-1][0] + len(found[-1][1].data) if found else FILE_HEADER_BYTES
    if stored_end(data, offset) > offset:
        check_torn(data, offset, NAME, replica=replica)
    return [block for _, block in found]


@IN_ANY_FILE
@given(CONTENTS)
def test_blocks_return_what_was_written(reserved: bytes, batches: list[list[bytes]]) -> None:
    data, blocks = file_of(batches)
    assert read_file_header(data, NAME) == JournalEnd()
    assert repaired(data + reserved) == blocks
    entries = [content for block in blocks for _, content in block.entries()]
    assert entries == [content for contents in batches for content in contents]
    assert read_blocks(data[FILE_HEADER_BYTES:], JournalEnd()) == blocks


@given(CONTENTS, st.data())
def test_torn_end_is_removed_and_nothing_else(batches: list[list[bytes]], draw: st.DataObject) -> None:
    data, blocks = file_of(batches)
    synced = len(data) - len(blocks[-1].data)
    cut = draw.draw(st.integers(synced, len(data) - 1))
    assert repaired(data[:cut]) == blocks[:-1]


@given(CONTENTS, st.data())
def test_sectors_that_were_not_stored_in_reserved_space_are_torn(
    batches: list[list[bytes]], draw: st.DataObject
) -> None:
    data, blocks = file_of(batches)
    synced = len(data) - len(blocks[-1].data)
    torn = bytearray(data + bytes(10_000))
    for sector in range(synced // SECTOR_BYTES, len(data) // SECTOR_BYTES + 1):
        if draw.draw(st.booleans()):
            begin, end = max(synced, sector * SECTOR_BYTES), (sector + 1) * SECTOR_BYTES
            torn[begin:end] = bytes(end - begin)
    assert repaired(bytes(torn)) == (blocks if torn.startswith(data) else blocks[:-1])


@IN_ANY_FILE
def test_missing_sector_at_the_end_is_torn(reserved: bytes) -> None:
    data, blocks = file_of([[b"first"], [b"x" * 3000]])
    hole = (len(data) - len(blocks[1].data)) // SECTOR_BYTES * SECTOR_BYTES + 2 * SECTOR_BYTES
    torn = data[:hole] + bytes(SECTOR_BYTES) + data[hole + SECTOR_BYTES :]
    assert repaired(torn + reserved) == blocks[:1]


@IN_ANY_FILE
@given(CONTENTS, st.data())
def test_flipped_bit_is_never_read(reserved: bytes, batches: list[list[bytes]], draw: st.DataObject) -> None:
    data, blocks = file_of(batches)
    at = draw.draw(st.integers(FILE_HEADER_BYTES, len(data) - 1))
    flipped = bytearray(data)
    flipped[at] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        found = repaired(bytes(flipped) + reserved)
    except JournalDamaged:
        return
    assert found == blocks[: len(found)]
    assert len(found) == len(blocks) - 1, "only the last block may look torn: its length or its sectors are damaged"


def test_flipped_bit_before_a_valid_block_is_damage() -> None:
    data, blocks = file_of([[b"first"], [b"second"]])
    flipped = bytearray(data)
    flipped[FILE_HEADER_BYTES + BLOCK_HEADER_BYTES + 5] ^= 1
    with pytest.raises(JournalDamaged, match="valid entries follow"):
        repaired(bytes(flipped))
    assert read_block(bytes(flipped), FILE_HEADER_BYTES) is None
    assert blocks[1].first == 2


@IN_ANY_FILE
def test_missing_sector_before_a_valid_block_is_torn_in_a_replica_only(reserved: bytes) -> None:
    data, blocks = file_of([[b"first"], [b"x" * 3000], [b"last"]])
    hole = 2 * SECTOR_BYTES
    torn = data[:hole] + bytes(SECTOR_BYTES) + data[hole + SECTOR_BYTES :] + reserved
    assert repaired(torn, replica=True) == blocks[:1]
    with pytest.raises(JournalDamaged, match="valid entries follow"):
        repaired(torn)


@IN_ANY_FILE
@pytest.mark.parametrize("byte", [b"y", b"\0"], ids=["", "a block that ends with zeros"])
def test_missing_sector_that_a_replica_had_synced_is_damage(byte: bytes, reserved: bytes) -> None:
    data, _ = file_of([[b"first"], [b"x" * 3000], [byte * UNSYNCED_BYTES_MAX]])
    hole = 2 * SECTOR_BYTES
    with pytest.raises(JournalDamaged, match="valid entries follow"):
        repaired(data[:hole] + bytes(SECTOR_BYTES) + data[hole + SECTOR_BYTES :] + reserved, replica=True)


@given(CONTENTS, st.data())
def test_flipped_bit_before_a_valid_block_is_damage_in_a_replica_too(
    batches: list[list[bytes]], draw: st.DataObject
) -> None:
    data, _ = file_of([*batches, [b"last"]])
    at = draw.draw(st.integers(FILE_HEADER_BYTES, len(file_of(batches)[0]) - 1))
    flipped = bytearray(data)
    flipped[at] ^= 1 << draw.draw(st.integers(0, 7))
    if any(not any(flipped[place : place + SECTOR_BYTES]) for place in range(0, len(data), SECTOR_BYTES)):
        return
    with pytest.raises(JournalDamaged):
        repaired(bytes(flipped), replica=True)


@IN_ANY_FILE
@pytest.mark.parametrize("place", [-1, -len(b"second") - BLOCK_HEADER_BYTES - 4], ids=["content", "magic"])
def test_flipped_bit_in_the_last_complete_block_is_damage(place: int, reserved: bytes) -> None:
    """Zeros of reserved space behind it do not make it a torn write."""
    data = bytearray(file_of([[b"first"], [b"second"]])[0])
    data[place] ^= 1
    with pytest.raises(JournalDamaged, match="restore"):
        repaired(bytes(data) + reserved)


def test_block_of_another_journal_is_refused() -> None:
    block = make_block(JournalEnd(3, 99), 1, [b"x"])
    with pytest.raises(JournalDamaged, match="after entry 0"):
        read_blocks(block.data, JournalEnd())


def test_file_of_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_format, "FORMAT", 9)
    data = file_header(JournalEnd())
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match="install a newer version"):
        read_file_header(data, NAME)


def test_flipped_bit_in_the_format_of_a_file_is_damage() -> None:
    data = bytearray(file_header(JournalEnd()))
    data[7] ^= 8
    with pytest.raises(JournalDamaged, match=f"the header of {NAME} is damaged"):
        read_file_header(bytes(data), NAME)
