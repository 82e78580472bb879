"""The keys of the catalog. Pure.

    palisade/catalog/databases/<database>
    palisade/catalog/tables/<database>/<table>
    palisade/catalog/devices/<path>                  the schema of a device: its time series; / for the dots of the path
    palisade/catalog/templates/<template>
    palisade/catalog/template-paths/<path>           which template is set there
    palisade/catalog/views/<path>
    palisade/catalog/resources/<kind>/<name>         what nodes execute: functions, triggers, quotas, system status
    palisade/catalog/ttl/<path>                      (region with a safe default: infinite)
    palisade/catalog/permissions/users/<user>        (region with policy deny)
    palisade/catalog/permissions/roles/<role>
    palisade/catalog/permissions/credentials/<user>  salt and hash of the password, apart from what readers cache
    palisade/procedures/<id>                         a procedure and what it did
    palisade/locks/<object>/                         the id of the procedure that works on it
    palisade.data/<database id>/<object id>/...      the rows of tables and devices: no metadata, and no strict region

Every key below palisade/ is strict: it is released to all nodes before its change is answered (seed 000).
"""

from __future__ import annotations

ROOT = b"palisade/catalog/"
DATABASES = ROOT + b"databases/"
TABLES = ROOT + b"tables/"
DEVICES = ROOT + b"devices/"
TEMPLATES = ROOT + b"templates/"
TEMPLATE_PATHS = ROOT + b"template-paths/"
VIEWS = ROOT + b"views/"
RESOURCES = ROOT + b"resources/"
TTL = ROOT + b"ttl/"
PERMISSIONS = ROOT + b"permissions/"
USERS = PERMISSIONS + b"users/"
ROLES = PERMISSIONS + b"roles/"
CREDENTIALS = PERMISSIONS + b"credentials/"
PROCEDURES = b"palisade/procedures/"
LOCKS = b"palisade/locks/"
DATA = "palisade.data/"
INSIDE = (TABLES, DEVICES, VIEWS, TTL, TEMPLATE_PATHS)
"""The places of a database's content: the first name after the prefix is that of the database."""


def at(place: bytes, path: str) -> bytes:
    """The key of a name, or of a path with dots, in one of the places above."""
    return place + path.replace(".", "/").encode()


def below(place: bytes, path: str) -> bytes:
    """The prefix of everything below a path, without the path itself."""
    return at(place, path) + b"/"


def path_of(place: bytes, key: bytes) -> str:
    """The inverse of `at`, also for keys that the catalog would not write."""
    return key[len(place) :].decode("utf-8", "backslashreplace").replace("/", ".")


def ancestors(path: str) -> list[str]:
    """For a.b.c: a, a.b."""
    names = path.split(".")
    return [".".join(names[:count]) for count in range(1, len(names))]


def database_of(path: str) -> str:
    return path.partition(".")[0]
