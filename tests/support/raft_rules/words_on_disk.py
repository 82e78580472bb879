"""No message leaves a node before the term, vote or entries in it are on its disk (pysyncobj.md, fault 4)."""

from __future__ import annotations

from typing import Any

from palisade.raftgroup.messages import MessageKind
from tests.support.onlooker import Onlooker, View

SAYS_TERM = frozenset(
    (
        MessageKind.APPEND,
        MessageKind.HEARTBEAT,
        MessageKind.APPEND_REPLY,
        MessageKind.HEARTBEAT_REPLY,
        MessageKind.REQUEST_VOTE,
        MessageKind.VOTE,
    )
)


class WordsOnDisk(Onlooker):
    name = "words on disk"

    def __init__(self, world: View) -> None:
        super().__init__(world)
        world.network.overhear = self.said

    def said(self, sender: str, receiver: str, kind: int, body: Any) -> None:
        if kind not in SAYS_TERM:
            return
        term, disk = body[0], self.world.by_id(sender).disk.journal.disk.stored
        if disk.term < term:
            self.fail(f"{sender} speaks in term {term} and has only {disk.term} on disk")
        if disk.term > term:
            return
        if kind == MessageKind.VOTE and body[1] and disk.vote != receiver:
            self.fail(f"{sender} votes for {receiver} in term {term} and has {disk.vote} on disk")
        held = disk.entries[-1].index if disk.entries else disk.base_index
        if kind == MessageKind.APPEND_REPLY and body[2] and held < body[1] - 1:
            self.fail(f"{sender} acknowledges up to {body[1] - 1} and has only {held} on disk")
