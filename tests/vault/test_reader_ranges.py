"""A fenced range is the state as of one revision, strict keys and others together (issue 16)."""

from __future__ import annotations

import pytest

from palisade.metastore.requests import Range
from palisade.vault.errors import Pending
from tests.support.vault_feed import follow
from tests.vault.test_reader import Node, node

__all__ = ["node"]


def test_range_of_strict_and_other_keys_is_the_state_as_of_one_revision(node: Node) -> None:
    """Issue 16: a removed member answered with strict keys as of revision 8 and another key as of revision 4."""
    reader, states = node.reader(), {}
    for key in (b"/e/a", b"/s/a", b"/e/b", b"/s/b"):
        revision = node.write(key, b"2")
        states[revision] = {kv.key: kv.value for kv in node.driver.store.range(Range(b"/e/", b"/t")).kvs}
    node.vault.staging.release(revision)
    node.on_sleep = lambda: follow(node.vault, node.driver)
    found = reader.range(b"/e/", b"/t")
    assert {item.key: item.value for item in found} == states[found.revision]
    assert found.revision == revision
    assert node.now > 0
    reader.close()


def test_range_of_strict_and_other_keys_waits_for_what_was_marked_when_it_began(node: Node) -> None:
    """Not for later changes: else a prefix that is written all the time could not be read."""
    reader, first = node.reader(), node.write(b"/s/a", b"2")
    node.vault.staging.release(first)

    def write_on() -> None:
        follow(node.vault, node.driver)
        node.vault.staging.release(node.write(b"/s/a", b"%d" % node.now))

    node.on_sleep = write_on
    found = reader.range(b"/e/", b"/t")
    assert found.revision == first
    assert {item.key: item.value for item in found}[b"/s/a"] == b"2"
    reader.close()


def test_range_of_a_vault_that_no_longer_advances_is_refused_unless_it_is_all_strict(node: Node) -> None:
    reader, revision = node.reader(wait_s=0.5), node.write(b"/s/a", b"2")
    node.vault.staging.release(revision)
    with pytest.raises(Pending, match=f"revision {revision}, which the vault has not applied within 0.5 s") as refused:
        reader.range(b"/e/", b"/t")
    assert refused.value.retry
    assert node.now == pytest.approx(0.5e9, rel=0.01)
    assert reader.prefix(b"/s/").revision == revision
    assert reader.prefix(b"/e/").revision < revision
    reader.close()
