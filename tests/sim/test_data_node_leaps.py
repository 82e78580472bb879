"""The vault of a data node follows the flushes of its store, as on every other member (issue 16).

While it applied each revision of a load of 200,000 keys, a data node was fenced for 40 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palisade.metastore.requests import Put
from palisade.recovery.listeners import Listeners
from tests.sim.scripted import scripted

KEYS = 1_000


def test_vault_of_a_data_node_leaps_over_changes_of_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    notified = dict[int, int]()
    notify: Callable[..., Any] = Listeners.notify

    async def counted(listeners: Listeners, notification: Any) -> None:
        notified[id(listeners)] = notified.get(id(listeners), 0) + 1
        await notify(listeners, notification)

    with scripted(segments=True) as script:
        hosts = [script.world.by_id(name) for name in script.world.data_nodes]
        assert hosts
        monkeypatch.setattr(Listeners, "notify", counted)
        writes = [script.begin(Put(b"/a/%d" % number, b"x")) for number in range(KEYS)]
        script.run_until(lambda: all(write.done() for write in writes), 60)
        end = script.leader.store.revision
        script.run_until(lambda: all(host.vault.revision >= end for host in hosts), 60)
        counts = [notified[id(host.node.keeper._inner.listeners)] for host in hosts]
    assert all(0 < count < KEYS / 2 for count in counts), counts
