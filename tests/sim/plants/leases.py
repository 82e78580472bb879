"""Faults of the leases to which keys are attached: when they end, and which keys they delete."""

from __future__ import annotations

from dataclasses import replace

from palisade.metastore.control_commands import Control
from palisade.metastore.lease import LEASE_ID, LeaseBook, lease_row
from palisade.metastore.ordered_map import Table
from tests.sim.plants.plant import MANY, Patch, caught_by

EARLY = 0.3
"""The remaining part of the time of a lease."""


@caught_by("leases")
def leases_that_end_too_early(patch: Patch) -> None:
    def store(self: LeaseBook, lease: int, ttl_ms: int) -> None:
        deadline = self._state.clock_ms + int(ttl_ms * EARLY)
        self._book[lease] = (ttl_ms, deadline)
        self._tables.put(Table.LEASE, LEASE_ID.pack(lease), lease_row(ttl_ms, deadline))

    patch.setattr(LeaseBook, "_store", store)


@caught_by("leases")
def leases_that_never_run_out(patch: Patch) -> None:
    patch.setattr(LeaseBook, "run_out", lambda self, clock_ms, count_max: ())


@caught_by("leases")
def keep_alives_that_do_nothing(patch: Patch) -> None:
    patch.setattr(LeaseBook, "keep_alive", lambda self, lease: self.require(lease)[0])


@caught_by("leases", on=replace(MANY, seed=3))
def leases_that_leave_their_keys(patch: Patch) -> None:
    patch.setattr(Control, "_remove_lease", lambda self, lease: self._leases.remove(lease))


@caught_by("leases")
def leases_that_end_key_by_key(patch: Patch) -> None:
    def remove(self: Control, lease: int) -> None:
        for key in self._leases.keys(lease):
            self._writer.delete(key)
            self._writer.close()
        self._leases.remove(lease)

    patch.setattr(Control, "_remove_lease", remove)
