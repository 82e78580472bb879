"""The state at a revision, from slices of later states and the changes in between."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.pipeline.undo import Undo, row_of
from palisade.wire.scan_pages import ScannedChange, ScannedRow, rows_of
from tests.support.slice_rows import bodies_of

State = dict[bytes, ScannedRow]
KEYS = st.sampled_from([b"%d" % number for number in range(9)] + [b"l" * 600, b"l" * 600 + b"0"])
WRITES = st.lists(st.tuples(KEYS, st.booleans()), max_size=40)


def written(state: State, key: bytes, put: bool, revision: int) -> tuple[State, ScannedChange | None]:
    old = state.get(key)
    if not put and old is None:
        return state, None
    if not put:
        rest = {name: row for name, row in state.items() if name != key}
        return rest, ScannedChange(ScannedRow(key, b"", revision, 0, 0, 0), 0, 0, old)
    created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
    row = ScannedRow(key, b"v%d" % revision, revision, created, version, revision % 3)
    return {**state, key: row}, ScannedChange(row, 0, 0, old)


@settings(deadline=None)
@given(WRITES, st.lists(st.tuples(WRITES, st.binary(max_size=2)), min_size=1, max_size=6))
def test_slices_of_later_states_with_their_changes_undone_are_the_state(
    before: list[tuple[bytes, bool]], slices: list[tuple[list[tuple[bytes, bool]], bytes]]
) -> None:
    """Writes, deletes and re-creations continue between the slices."""
    state: State = {}
    revision = 1
    for key, put in before:
        revision += 1
        state, _ = written(state, key, put, revision)
    wanted = [state[key] for key in sorted(state)]
    undo, found, at = Undo(), list[ScannedRow](), b""
    ends = sorted(end for _, end in slices[:-1])
    for (writes, _), until in zip(slices, [*ends, None], strict=True):
        for key, put in writes:
            revision += 1
            state, change = written(state, key, put, revision)
            if change is not None and key >= at:
                undo.add([change])
        part = [key for key in sorted(state) if at <= key and (until is None or key < until)]
        page = undo.rows(*slice_with([row_of(state[key]) for key in part]), until)
        found += rows_of(b"".join(bodies_of(*page)))
        at = until or b""
    assert found == wanted


def test_state_without_changes_is_passed_on_as_it_is() -> None:
    undo = Undo()
    page, sizes = slice_with([row_of(ScannedRow(key, b"1", 2, 2, 1, 0)) for key in (b"a", b"b")])
    assert undo.rows(page, sizes, None) == (page, sizes)
    undo.add([ScannedChange(ScannedRow(b"c", b"1", 4, 4, 1, 0), 0, 0, None)])
    found = undo.rows(page, sizes, b"c")
    assert found[0] is page
    assert found[1] is sizes


def slice_with(rows: list[bytes]) -> tuple[bytes, array[int]]:
    return b"".join(rows), array("I", map(len, rows))
