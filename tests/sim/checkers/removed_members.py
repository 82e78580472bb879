"""The vault of a removed member does not serve (issue 16): at once if the node knows of its removal, and at the latest
T_proceed after the removal. The storage of a removed member never becomes a member again.

Observed from outside. The membership is that of the newest leader, as it has committed it. The fence page is read from
the disk, also of nodes that are dead, paused or isolated, by the clock of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.raftgroup.membership import Membership
from palisade.vault.fence_page import COPY_BYTES, unpack_fence
from tests.sim.node import Host
from tests.sim.world import Checker, World


class RemovedMembers(Checker):
    name = "removed members"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._term = 0
        self._latest_s: dict[str, tuple[int, float]] = {}
        """Member -> number of its disk, and until when its page may serve, in simulated time."""
        self._compared = -1
        """The index of the newest committed membership that was compared."""
        self._storages: set[tuple[str, str]] = set()
        self._removed: set[tuple[str, str]] = set()

    def turned(self, host: Host) -> None:
        group = host.group
        if group is None or host.follows:
            return
        if group.removal.error is not None:
            self.world.count("removed member: knows it")
            self._must_not_serve(host, "knows of its removal")
        if group.leads and group.term >= self._term:
            self._term = group.term
            self._note(host)
        for name, (disk, latest_s) in list(self._latest_s.items()):
            member = self.world.hosts[name]
            if member.disks != disk:
                del self._latest_s[name]
            elif self.world.simulation.now > latest_s:
                self.world.count("removed member: its time is over")
                self._must_not_serve(member, "was removed more than T_proceed ago")

    def _note(self, leader: Host) -> None:
        group = leader.group
        if group is None or not group._replica.membership_settled():
            return
        self._compare(group._replica._memberships._changes)
        for member in self.world.members:
            if group.members.get(member.id) is not None:
                self._latest_s.pop(member.id, None)
            elif member.id not in self._latest_s:
                proceed_s = leader.node.fencing.lease_server.timing.proceed_s()
                self._latest_s[member.id] = member.disks, self.world.simulation.now + 1.01 * proceed_s

    def _compare(self, committed: Sequence[tuple[int, Membership]]) -> None:
        """Fails if a storage that an earlier membership had, and a later one had not, is back. Memberships that were
        compacted before this look are not compared."""
        if committed[-1][0] <= self._compared:
            return
        for index, membership in committed:
            if index > self._compared:
                before = self._storages
                self._storages = {(each.id, each.incarnation) for each in membership.members if each.incarnation}
                self._removed |= before - self._storages
                for member, incarnation in sorted(self._storages & self._removed):
                    self.fail(f"{member} is a member again with storage {incarnation}, which was removed")
        self._compared = committed[-1][0]

    def _must_not_serve(self, host: Host, why: str) -> None:
        page = unpack_fence(bytes(host.disk.page[:COPY_BYTES])) if host.starts and any(host.disk.page) else None
        now = host.offset_s + host.rate * self.world.simulation.now
        if page is not None and page.serves(int(now * 1e9), host.disk.boot):
            self.fail(f"{host.id} {why}, and its page serves for {page.deadline_ns / 1e9 - now:.3f} s more")
