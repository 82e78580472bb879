"""/v3/maintenance/alarm: the quota alarm as etcd shows it. As in etcd 3.4, these answers have no header."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from palisade.api.http.protobuf_json import JsonMessage, as_enum, as_int64


class AlarmAction(enum.IntEnum):
    GET = 0
    ACTIVATE = 1
    DEACTIVATE = 2


class Alarm(enum.IntEnum):
    NONE = 0
    NOSPACE = 1
    CORRUPT = 2


_ALARM = JsonMessage(
    "etcdserverpb.AlarmRequest",
    {
        "action": as_enum(AlarmAction, "etcdserverpb.AlarmRequest_AlarmAction"),
        "memberID": as_int64,
        "alarm": as_enum(Alarm, "etcdserverpb.AlarmType"),
    },
)


@dataclass(frozen=True, slots=True)
class AlarmRequest:
    """`member` 0 stands for any."""

    action: AlarmAction
    member: int
    alarm: Alarm

    @property
    def is_about_space(self) -> bool:
        return self.alarm is Alarm.NOSPACE or (self.alarm is Alarm.NONE and self.action is AlarmAction.GET)


def decode_alarm(value: Any) -> AlarmRequest:
    found = _ALARM.read(value)
    return AlarmRequest(found.get("action", AlarmAction.GET), found.get("memberID", 0), found.get("alarm", Alarm.NONE))


def alarm_fields(member: int, *, raised: bool) -> str:
    return f'{{"alarms":[{{"memberID":"{member}","alarm":"NOSPACE"}}]}}' if raised else "{}"
