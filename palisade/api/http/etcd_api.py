"""The unary JSON paths of etcd v3: bytes of a request in, status and bytes of its response out.

Each function takes the body, a `reply` and the caller, and calls `reply` exactly once: for puts in the turn of the
event loop in which they are applied, without a task or a future of their own, and for reads of one key at once if the
quorum lease permits it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from palisade.api.http import etcd_keys as keys
from palisade.api.http import etcd_leases as leases
from palisade.api.http.etcd_alarm import AlarmAction, alarm_fields, decode_alarm
from palisade.api.http.etcd_cluster import decode_empty, error_fields
from palisade.api.http.etcd_cluster import member as member_fields
from palisade.api.http.etcd_ids import number_of
from palisade.api.http.protobuf_json import BadJson, read_single
from palisade.api.http.request_head import HttpReply, Unary
from palisade.base.errors import PalisadeError
from palisade.base.version import VERSION
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import Command, DisarmAlarm, LeaseRevoke
from palisade.metastore.validation import is_read_only
from palisade.service.authorization.needs import reading
from palisade.service.callers import Caller
from palisade.service.key_values import KeyValues
from palisade.wire.error_codes import INTERNAL, etcd_words, refusal_of

log = logging.getLogger(__name__)

Fields = Callable[[Any, str], str]


class Unimplemented(PalisadeError):
    """etcd supports it, this node does not."""

    code = "unimplemented"


class EtcdApi:
    """`cluster` is the name of the cluster, `member` this node's: etcd's numeric ids are derived from them."""

    def __init__(self, service: KeyValues, cluster: str, member: str) -> None:
        self._service = service
        self._cluster = cluster
        self._member = member
        self._number = number_of(cluster, member)
        self.header = keys.Header(number_of(cluster), self._number)
        self._tasks: set[asyncio.Task[None]] = set()
        self.unary: dict[str, Unary] = {
            "/v3/kv/put": self.put,
            "/v3/kv/range": self.range,
            "/v3/kv/deleterange": self.delete_range,
            "/v3/kv/txn": self.txn,
            "/v3/kv/compaction": self.compaction,
            "/v3/lease/grant": self.lease_grant,
            "/v3/lease/revoke": self.lease_revoke,
            "/v3/kv/lease/revoke": self.lease_revoke,
            "/v3/lease/timetolive": self.lease_time_to_live,
            "/v3/kv/lease/timetolive": self.lease_time_to_live,
            "/v3/lease/leases": self.lease_leases,
            "/v3/kv/lease/leases": self.lease_leases,
            "/v3/maintenance/status": self.status,
            "/v3/maintenance/alarm": self.alarm,
            "/v3/cluster/member/list": self.member_list,
        }

    @property
    def term(self) -> int:
        return self._service.group.term

    def header_now(self) -> str:
        return self.header.text(self._service.store.revision, self.term)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Keys.

    def put(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._write(keys.decode_put, keys.put_fields, body, reply, caller)

    def delete_range(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._write(keys.decode_delete, keys.delete_fields, body, reply, caller)

    def compaction(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._write(keys.decode_compact, keys.compact_fields, body, reply, caller)

    def txn(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        try:
            request = keys.decode_txn(read_single(body))
            read_only = is_read_only(request)
            if not read_only:
                self._service.submit(request, partial(self._answer, keys.txn_fields, reply), caller=caller)
        except Exception as error:
            reply(*refused(error))
            return
        if read_only:
            self._later(self._read(self._service.read_txn(request, caller=caller), keys.txn_fields), reply)

    def range(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        try:
            request = keys.decode_range(read_single(body))
            result = self._service.range_now(request, caller=caller)
            if result is not None:
                text = keys.range_fields(result, self.header.text(result.revision, self._service.group.term))
        except Exception as error:
            reply(*refused(error))
            return
        if result is not None:
            reply(200, text.encode())
        else:
            self._later(self._read(self._service.range(request, caller=caller), keys.range_fields), reply)

    # Leases.

    def lease_grant(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._write(leases.decode_grant, leases.lease_fields, body, reply, caller)

    def lease_revoke(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._write(lambda value: LeaseRevoke(leases.decode_lease_id(value)), leases.revoke_fields, body, reply, caller)

    def lease_time_to_live(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._later(self._time_to_live(body, caller), reply)

    async def _time_to_live(self, body: bytes, caller: Caller) -> str:
        lease_id, with_keys = leases.decode_time_to_live(read_single(body))
        if with_keys and caller.is_limited:
            caller.require(tuple(map(reading, self._service.lease_keys(lease_id))))
        try:
            info = await self._service.lease_info(lease_id)
        except LeaseNotFound:
            return f'{{{self.header_now()},"ID":"{lease_id}","TTL":"-1"}}'
        return leases.lease_info_fields(info, self.header.text(info.revision, self.term), with_keys)

    def lease_leases(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._later(self._leases(body), reply)

    async def _leases(self, body: bytes) -> str:
        decode_empty(read_single(body))
        ids = await self._service.leases()
        return leases.leases_fields(ids, self.header_now())

    # The cluster.

    def status(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        try:
            decode_empty(read_single(body))
            reply(200, self._status().encode())
        except BadJson as error:
            reply(*refused(error))

    def _status(self) -> str:
        status, store = self._service.group.status(), self._service.store
        leader = f'"leader":"{number_of(self._cluster, status.leader)}",' if status.leader else ""
        alarm = f'"errors":["memberID:{self._number} alarm:NOSPACE "],' if store.alarm else ""
        return (
            f'{{{self.header_now()},"version":"{VERSION}","dbSize":"{store.size_bytes}",{leader}'
            f'"raftIndex":"{status.commit_index}","raftTerm":"{status.term}",'
            f'"raftAppliedIndex":"{status.applied_index}",{alarm}"dbSizeInUse":"{store.size_bytes}"}}'
        )

    def alarm(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._later(self._alarm(body, caller), reply)

    async def _alarm(self, body: bytes, caller: Caller) -> str:
        """The alarm is the cluster's: every member reports it as its own, and any member's id clears it."""
        request = decode_alarm(read_single(body))
        if request.action is not AlarmAction.GET:
            self._service.authorize(DisarmAlarm(), caller)
        if request.action is AlarmAction.ACTIVATE:
            raise Unimplemented("alarms are raised by the store itself")
        await self._service.barrier()
        raised = self._service.store.alarm and request.is_about_space
        if raised and request.action is AlarmAction.DEACTIVATE:
            members = {number_of(self._cluster, each.id) for each in self._service.group.members.members}
            known = request.member in members | {0}
            raised = known and bool((await self._service.write(DisarmAlarm(), caller=caller)).count)
            return alarm_fields(request.member or self._number, raised=raised)
        return alarm_fields(self._number, raised=raised)

    def member_list(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        try:
            decode_empty(read_single(body))
            reply(200, self._member_list().encode())
        except BadJson as error:
            reply(*refused(error))

    def _member_list(self) -> str:
        group = self._service.group
        listed = ",".join(member_fields(number_of(self._cluster, each.id), each) for each in group.members.members)
        return f'{{{self.header.text(0, group.term)},"members":[{listed}]}}'

    # Responses.

    def _write(
        self, read: Callable[[Any], Command], fields: Fields, body: bytes, reply: HttpReply, caller: Caller
    ) -> None:
        try:
            self._service.submit(read(read_single(body)), partial(self._answer, fields, reply), caller=caller)
        except Exception as error:
            reply(*refused(error))

    def _answer(self, fields: Fields, reply: HttpReply, result: Any) -> None:
        if isinstance(result, Exception):
            reply(*refused(result))
        else:
            reply(200, fields(result, self.header.text(result.revision, self._service.group.term)).encode())

    async def _read(self, result: Awaitable[Any], fields: Fields) -> str:
        found = await result
        return fields(found, self.header.text(found.revision, self.term))

    def _later(self, answer: Awaitable[str], reply: HttpReply) -> None:
        task = asyncio.get_running_loop().create_task(_answer(answer, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(answer: Awaitable[str], reply: HttpReply) -> None:
    try:
        text = await answer
    except Exception as error:
        reply(*refused(error))
    else:
        reply(200, text.encode())


def refused(error: Exception) -> tuple[int, bytes]:
    """(status, body) of a failed request; unexpected errors are logged."""
    if isinstance(error, BadJson):
        return 400, error_fields(str(error), 3)
    if isinstance(error, Unimplemented):
        return 501, error_fields(f"palisade: {error}", 12)
    if refusal_of(error) is INTERNAL:
        log.error("a request failed", exc_info=error)
    message, code, status = etcd_words(error)
    return status, error_fields(message, code)
