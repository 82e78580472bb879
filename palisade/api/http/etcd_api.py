"""The unary JSON paths of etcd v3: bytes of a request in, status and bytes of its response out. Those of keys are in
`etcd_keys.py`.

Each function takes the body, a `reply` and the caller, and calls `reply` exactly once.
"""

from __future__ import annotations

from typing import Any

from palisade.api.http import etcd_leases as leases
from palisade.api.http.etcd_alarm import AlarmAction, alarm_fields, decode_alarm
from palisade.api.http.etcd_cluster import decode_empty
from palisade.api.http.etcd_cluster import member as member_fields
from palisade.api.http.etcd_errors import Unimplemented, refused
from palisade.api.http.etcd_ids import number_of
from palisade.api.http.etcd_keys import EtcdKeys
from palisade.api.http.protobuf_json import BadJson, read_single
from palisade.api.http.request_head import HttpReply, Unary
from palisade.base.version import VERSION
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import DisarmAlarm, LeaseRevoke
from palisade.service.authorization.needs import reading
from palisade.service.callers import Caller
from palisade.service.key_values import KeyValues


class EtcdApi:
    """`cluster` is the name of the cluster, `member` this node's: etcd's numeric ids are derived from them."""

    def __init__(self, service: KeyValues, cluster: str, member: str) -> None:
        self._service = service
        self._cluster = cluster
        self._member = member
        self._number = number_of(cluster, member)
        self._keys = EtcdKeys(service, number_of(cluster), self._number)
        self.header = self._keys.header
        revoke, time_to_live = self._keys.writes(decode_revoke, leases.revoke_fields), self.lease_time_to_live
        self.unary: dict[str, Unary] = {
            **self._keys.unary,
            "/v3/lease/grant": self._keys.writes(leases.decode_grant, leases.lease_fields),
            "/v3/lease/revoke": revoke,
            "/v3/kv/lease/revoke": revoke,
            "/v3/lease/timetolive": time_to_live,
            "/v3/kv/lease/timetolive": time_to_live,
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
        await self._keys.close()

    # Leases.

    def lease_time_to_live(self, body: bytes, reply: HttpReply, caller: Caller) -> None:
        self._keys.later(self._time_to_live(body, caller), reply)

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
        self._keys.later(self._leases(body), reply)

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
        self._keys.later(self._alarm(body, caller), reply)

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


def decode_revoke(value: Any) -> LeaseRevoke:
    return LeaseRevoke(leases.decode_lease_id(value))
