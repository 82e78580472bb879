"""The rare requests of the stream: name -> function. Arguments and results are msgpack values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.cluster_view import listed_members, status_view
from palisade.api.segment_service import SegmentLookups
from palisade.api.services import NodeServices
from palisade.api.stream.catalog_calls import CatalogCalls
from palisade.api.stream.scan_calls import ScanCalls
from palisade.api.stream.segment_calls import SegmentCalls
from palisade.metastore.command_codec import decode_command, encode_result
from palisade.metastore.errors import InvalidRequest
from palisade.metastore.requests import RequestId, Txn
from palisade.service.regions import RegionAdmin
from palisade.service.segment_writes import announce, lease_of_announcements, write_segments
from palisade.topology.member_request import NAME_CHARACTERS_MAX, new_member
from palisade.wire.region_json import fields_from

Call = Callable[..., Awaitable[Any]]

LED = frozenset({
    "catalog_do", "pin", "procedure_cancel", "region_change", "region_delete", "region_set", "segments_announce",
    "segments_lease", "segments_txn", "unpin",
})  # fmt: skip
"""Changes that take the deadline of the node, some of them in several requests. They begin only if there is a leader,
so that a client gets a refusal before its own deadline, instead of having to report that the outcome is unknown."""


class Calls:
    """`cluster` is the name of the cluster."""

    def __init__(self, services: NodeServices, cluster: str) -> None:
        self._services, self._service = services, services.key_values
        self._cluster = cluster
        self._book = RegionAdmin(self._service)
        self._by_name: dict[str, Call] = {
            "ping": self._ping,
            "status": self._status,
            "members": self._members,
            "topology": self._topology,
            "lease_info": self._lease_info,
            "leases": self._leases,
            "digest": self._digest,
            "member_add": self._member_add,
            "member_promote": self._member_promote,
            "member_remove": self._member_remove,
            "transfer": self._transfer,
            **CatalogCalls(services).by_name(),
            **ScanCalls(services.key_values).by_name(),
            "fencing": self._fencing,
            "regions": self._book.view,
            "region_set": self._region_set,
            "region_change": self._region_change,
            "region_delete": self._region_delete,
            "segments_txn": self._segments_txn,
            "segments_announce": self._segments_announce,
            "segments_lease": self._segments_lease,
            **SegmentCalls(SegmentLookups(services.broker)).by_name(),
        }

    async def run(self, name: Any, arguments: Any, timeout_s: float | None = None) -> Any:
        """`timeout_s`: how long a change may wait for a leader; by default the deadline of the node.

        Raises InvalidRequest for an unknown name or wrong arguments, and the errors of the call itself."""
        call = self._by_name.get(name) if type(name) is str else None
        if call is None or type(arguments) is not list:
            raise InvalidRequest(f"unknown call {str(name)[:64]!r}; known are {', '.join(self._by_name)}")
        try:
            if name in LED:
                await self._service.barrier(timeout_s=timeout_s)
            return await call(*arguments)
        except TypeError as error:
            raise InvalidRequest(f"call {name}: {str(error)[:200]}") from None

    async def _ping(self) -> None:
        return None

    async def _status(self) -> dict[str, Any]:
        return status_view(self._services, self._cluster)

    async def _members(self) -> list[dict[str, Any]]:
        return listed_members(self._service)

    async def _topology(self) -> dict[str, Any]:
        if self._services.topology is None:
            raise InvalidRequest("this node runs without a cluster: it has no topology")
        return self._services.topology.view()

    async def _lease_info(self, lease_id: Any) -> list[Any]:
        if type(lease_id) is not int:
            raise InvalidRequest(f"the id of a lease is a number, not {type(lease_id).__name__}")
        info = await self._service.lease_info(lease_id)
        return [info.revision, info.id, info.ttl_ms, info.granted_ttl_ms, info.keys]

    async def _leases(self) -> list[int]:
        return list(await self._service.leases())

    async def _digest(self) -> list[Any]:
        digest = await self._service.digest()
        return [digest.revision, digest.chain, digest.buckets]

    async def _member_add(self, member: Any, incarnation: Any, addresses: Any, voter: Any) -> None:
        await self._service.group.add(new_member(member, incarnation, addresses, voter))

    async def _member_promote(self, member: Any) -> None:
        await self._service.group.promote(a_member(member))

    async def _member_remove(self, member: Any) -> None:
        await self._service.group.remove(a_member(member))

    async def _transfer(self, target: Any) -> str:
        return await self._service.group.transfer(None if target is None else a_member(target))

    async def _fencing(self) -> dict[str, Any]:
        if self._services.fencing_view is None:
            raise InvalidRequest("this node runs without a cluster: it has no leases")
        return self._services.fencing_view()

    async def _region_set(self, name: str, packed: bytes) -> int:
        if type(name) is not str or type(packed) is not bytes:
            raise InvalidRequest("region_set takes the name and the record of a region")
        return await self._book.put_packed(name, packed)

    async def _region_change(self, name: str, fields: Any) -> int:
        if type(name) is not str:
            raise InvalidRequest("region_change takes the name of a region")
        try:
            return (await self._book.change(name, fields_from(fields)))[0]
        except ValueError as error:
            raise InvalidRequest(str(error)) from None

    async def _region_delete(self, name: str) -> int:
        if type(name) is not str:
            raise InvalidRequest("region_delete takes the name of a region")
        return await self._book.delete(name)

    async def _segments_txn(self, packed: Any) -> Any:
        return encode_result(await write_segments(self._service, *a_transaction(packed)))

    async def _segments_announce(self, packed: Any) -> Any:
        return encode_result(await announce(self._service, *a_transaction(packed)))

    async def _segments_lease(self, lease: Any, ttl_ms: Any) -> int:
        if type(lease) is not int or type(ttl_ms) is not int:
            raise InvalidRequest("segments_lease takes the id of a lease and a time in ms")
        return await lease_of_announcements(self._service, lease, ttl_ms)


def a_transaction(packed: Any) -> tuple[Txn, RequestId | None]:
    """Of segments: a command as bytes. Raises InvalidRequest."""
    if type(packed) is not bytes:
        raise InvalidRequest("segments_txn takes a transaction as bytes")
    request, request_id = decode_command(packed)
    if not isinstance(request, Txn):
        raise InvalidRequest(f"segments_txn takes a transaction, not {type(request).__name__}")
    return request, request_id


def a_member(value: Any) -> str:
    """The id of a member, known or not."""
    if type(value) is not str or len(value) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(f"the id of a member is a text of up to {NAME_CHARACTERS_MAX} characters")
    return value
