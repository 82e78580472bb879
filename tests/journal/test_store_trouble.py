"""What a copy logs while the metadata store does not answer."""

from __future__ import annotations

from palisade.journal.store_trouble import LOOK_S, StoreTrouble


def test_store_trouble_is_a_line_within_two_seconds_and_at_growing_intervals_until_the_store_answers() -> None:
    lines, written = StoreTrouble("orders"), list[tuple[float, str]]()
    for look in range(300):
        now = 5.0 + look * LOOK_S
        line = lines.line("connection refused" if look < 250 else None, now)
        if line is not None:
            written.append((now - 5.0, line))
    begin, *later, end = written
    assert begin[0] < 2.0
    assert begin[1] == "metadata store does not answer: role=orders reason=connection refused"
    assert [round(at) for at, _ in later] == [11, 31, 71]
    assert end[1].startswith("metadata store answers again: role=orders (after ")


def test_store_trouble_of_a_change_of_leader_is_no_line() -> None:
    lines = StoreTrouble("orders")
    found = [lines.line(trouble, now) for now, trouble in ((0.0, "no leader"), (0.4, "no leader"), (0.8, None))]
    assert found == [None, None, None]
