"""How each refusal is told: one table for HTTP, for etcd's JSON paths and for the stream.

Pure. A row says which error, its stable code (the problem type of RFC 9457 and what travels on the stream), the HTTP
status of /v1, and the gRPC code with etcd's own words of /v3 (etcd 3.4, etcdserver/api/v3rpc/rpctypes/error.go).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from catalog import errors as catalog
from metastore import errors as store
from node.authorization import errors as authorization
from node.partitions import errors as partitions
from node.scenarios import errors as scenarios
from node.topology import errors as topology
from raftgroup import errors as group
from service import fencing_errors as fencing
from vault import errors as vault


class Grpc(enum.IntEnum):
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


HTTP_OF_GRPC = {
    Grpc.UNKNOWN: 500,
    Grpc.INVALID_ARGUMENT: 400,
    Grpc.DEADLINE_EXCEEDED: 504,
    Grpc.NOT_FOUND: 404,
    Grpc.RESOURCE_EXHAUSTED: 429,
    Grpc.FAILED_PRECONDITION: 412,
    Grpc.OUT_OF_RANGE: 400,
    Grpc.UNIMPLEMENTED: 501,
    Grpc.INTERNAL: 500,
    Grpc.UNAVAILABLE: 503,
    Grpc.DATA_LOSS: 500,
    Grpc.PERMISSION_DENIED: 403,
    Grpc.UNAUTHENTICATED: 401,
}
"""What grpc-gateway 1.9 makes of a gRPC code."""


class BadRequest(Exception):
    """What was sent can't be read: the text names the field and what is wrong with it."""


class PreconditionFailed(Exception):
    """If-Match or If-None-Match does not hold. Nothing was changed."""


class WithoutCluster(Exception):
    """A node that runs alone, from its vault, was asked for what only a cluster can do. Nothing was changed."""

    retry = False


class NoMember(Exception):
    """A node that is no member of the Raft group was asked for what only members serve. Nothing was changed."""

    retry = False


class Refusal(NamedTuple):
    """`etcd` None: the text of the error itself, because etcd has no words for it."""

    code: str
    status: int
    title: str
    grpc: Grpc
    etcd: str | None


_INVALID, _RANGE, _DOWN = Grpc.INVALID_ARGUMENT, Grpc.OUT_OF_RANGE, Grpc.UNAVAILABLE
_STATE = Grpc.FAILED_PRECONDITION
_TOO_LARGE = "etcdserver: request is too large"
_TOO_MANY = "etcdserver: too many operations in txn request"
_NO_SPACE = "etcdserver: mvcc: database space exceeded"
_COMPACTED = "etcdserver: mvcc: required revision has been compacted"
_FUTURE = "etcdserver: mvcc: required revision is a future revision"

REFUSALS: dict[type[Exception], Refusal] = {
    BadRequest: Refusal("bad-request", 400, "The request can't be read", _INVALID, None),
    PreconditionFailed: Refusal("precondition-failed", 412, "The key is not as it was expected", _INVALID, None),
    WithoutCluster: Refusal("standalone", 503, "This node runs without its cluster", _DOWN, None),
    NoMember: Refusal("not-a-member", 421, "This node is no member of the cluster", Grpc.FAILED_PRECONDITION, None),
    authorization.NoCredentials: Refusal(
        "unauthenticated", 401, "Nobody has signed in", _INVALID, "etcdserver: user name is empty"
    ),
    authorization.WrongPassword: Refusal(
        "unauthenticated",
        401,
        "Wrong user or password",
        _INVALID,
        "etcdserver: authentication failed, invalid user ID or password",
    ),
    authorization.Unauthenticated: Refusal(
        "unauthenticated", 401, "Sign in again", Grpc.UNAUTHENTICATED, "etcdserver: invalid auth token"
    ),
    authorization.PermissionDenied: Refusal(
        "permission-denied", 403, "You may not", Grpc.PERMISSION_DENIED, "etcdserver: permission denied"
    ),
    authorization.PermissionsUnknown: Refusal("permissions-unknown", 503, "Who may what can't be known", _DOWN, None),
    authorization.TooManyLogins: Refusal("too-many-logins", 429, "Later", Grpc.RESOURCE_EXHAUSTED, None),
    authorization.AuthorizationOff: Refusal(
        "authorization-off",
        409,
        "Nobody has to sign in here",
        Grpc.FAILED_PRECONDITION,
        "etcdserver: authentication is not enabled",
    ),
    store.KeyEmpty: Refusal("key-empty", 400, "No key given", _INVALID, "etcdserver: key is not provided"),
    store.KeyTooLarge: Refusal("key-too-large", 413, "The key is too large", _INVALID, _TOO_LARGE),
    store.ValueTooLarge: Refusal("value-too-large", 413, "The value is too large", _INVALID, _TOO_LARGE),
    store.RequestTooLarge: Refusal("request-too-large", 413, "The request is too large", _INVALID, _TOO_LARGE),
    store.TooManyOperations: Refusal("too-many-operations", 413, "Too many operations", _INVALID, _TOO_MANY),
    store.DuplicateKey: Refusal(
        "duplicate-key", 400, "A key is written twice", _INVALID, "etcdserver: duplicate key given in txn request"
    ),
    store.InvalidRequest: Refusal("invalid-request", 400, "The request makes no sense", _INVALID, None),
    store.KeyNotFound: Refusal("key-not-found", 404, "No such key", _INVALID, "etcdserver: key not found"),
    store.Compacted: Refusal("compacted", 410, "The revision is compacted", _RANGE, _COMPACTED),
    store.FutureRevision: Refusal("future-revision", 400, "The revision does not exist yet", _RANGE, _FUTURE),
    store.LeaseNotFound: Refusal(
        "lease-not-found", 404, "No such lease", Grpc.NOT_FOUND, "etcdserver: requested lease not found"
    ),
    store.LeaseExists: Refusal(
        "lease-exists", 409, "The lease exists already", Grpc.FAILED_PRECONDITION, "etcdserver: lease already exists"
    ),
    store.LeaseTtlInvalid: Refusal(
        "lease-ttl-invalid", 400, "The time to live is out of range", _RANGE, "etcdserver: too large lease TTL"
    ),
    store.QuotaExceeded: Refusal("quota-exceeded", 507, "The store is full", Grpc.RESOURCE_EXHAUSTED, _NO_SPACE),
    store.TooManyPins: Refusal("too-many-pins", 503, "Too many pins", Grpc.RESOURCE_EXHAUSTED, None),
    store.ResultEvicted: Refusal("result-evicted", 409, "The first result is forgotten", _INVALID, None),
    vault.VaultDamaged: Refusal("corrupt", 500, "Stored data is damaged", Grpc.DATA_LOSS, None),
    vault.VaultError: Refusal("vault-unusable", 503, "The vault of this node can't be read", _DOWN, None),
    vault.Fenced: Refusal("fenced", 503, "This node is fenced", _DOWN, None),
    vault.Pending: Refusal("read-pending", 503, "A change is not released yet", _DOWN, None),
    vault.Denied: Refusal("fenced-denied", 403, "What can't be known is refused", Grpc.PERMISSION_DENIED, None),
    vault.NotReached: Refusal("not-reached", 503, "The vault is not at that revision yet", _DOWN, None),
    store.StoreCorrupt: Refusal(
        "corrupt", 500, "Stored data is damaged", Grpc.DATA_LOSS, "etcdserver: corrupt cluster"
    ),
    store.MetastoreError: Refusal("refused", 400, "The request was refused", _INVALID, None),
    group.NotLeader: Refusal("not-leader", 503, "This node does not lead", _DOWN, "etcdserver: not leader"),
    group.Unavailable: Refusal("unavailable", 503, "No leader with a majority", _DOWN, "etcdserver: no leader"),
    group.OutcomeUnknown: Refusal(
        "outcome-unknown", 504, "The outcome is unknown", Grpc.DEADLINE_EXCEEDED, "etcdserver: request timed out"
    ),
    fencing.ReleasePending: Refusal(
        "release-pending", 504, "Committed, and not released yet", Grpc.DEADLINE_EXCEEDED, None
    ),
    fencing.ReadPending: Refusal("read-pending", 503, "A change is not released yet", _DOWN, None),
    fencing.ReservedKey: Refusal("reserved-key", 403, "The key belongs to the cluster", _INVALID, None),
    group.MembershipRefused: Refusal(
        "membership-refused", 409, "The membership can't change so now", Grpc.FAILED_PRECONDITION, None
    ),
    topology.JoinRejected: Refusal("join-rejected", 403, "The node may not join", Grpc.FAILED_PRECONDITION, None),
    topology.AlreadyInitialized: Refusal(
        "already-initialized", 409, "The cluster is initialized", Grpc.FAILED_PRECONDITION, None
    ),
    topology.JoinLater: Refusal("join-later", 503, "The node can't join yet", _DOWN, None),
    partitions.BadPartition: Refusal("bad-request", 400, "The request can't be read", _INVALID, None),
    partitions.NoSuchPartition: Refusal("no-such-partition", 404, "Not held here", Grpc.NOT_FOUND, None),
    scenarios.NoSuchScenario: Refusal("no-such-scenario", 404, "No such scenario", Grpc.NOT_FOUND, None),
    scenarios.ScenarioRuns: Refusal("scenario-runs", 409, "A scenario is under way", Grpc.FAILED_PRECONDITION, None),
    scenarios.ScenariosOff: Refusal("scenarios-off", 403, "It plays no scenarios", Grpc.FAILED_PRECONDITION, None),
    catalog.BadField: Refusal("catalog-bad-field", 400, "A field can't be so", _INVALID, None),
    catalog.NotThere: Refusal("catalog-not-there", 404, "No such object", Grpc.NOT_FOUND, None),
    catalog.AlreadyThere: Refusal("catalog-already-there", 409, "It is there already", _STATE, None),
    catalog.NotAllowed: Refusal("catalog-not-allowed", 409, "The object can't be changed so now", _STATE, None),
    catalog.Busy: Refusal("catalog-busy", 409, "Another procedure works on it", _DOWN, None),
    catalog.RolledBack: Refusal("catalog-rolled-back", 409, "The change was taken back", _STATE, None),
    catalog.DamagedRow: Refusal("catalog-damaged", 500, "A row of the catalog is damaged", Grpc.DATA_LOSS, None),
    catalog.NoSuchProcedure: Refusal("catalog-no-such-procedure", 404, "No such procedure", Grpc.NOT_FOUND, None),
    catalog.ProcedureDiffers: Refusal(
        "catalog-procedure-differs", 409, "The id belongs to another operation", _STATE, None
    ),
    catalog.NotCancellable: Refusal("catalog-not-cancellable", 409, "The procedure can't be taken back", _STATE, None),
    catalog.CatalogError: Refusal("catalog-refused", 409, "The catalog refuses it", _STATE, None),
    group.NodeFailed: Refusal("node-failed", 503, "This node has stopped", _DOWN, "etcdserver: server stopped"),
}
INTERNAL = Refusal("internal", 500, "The node has a fault", Grpc.INTERNAL, "the node has a fault; its log says more")


def refusal_of(error: Exception) -> Refusal:
    """The row of an error, or of the nearest class that it derives from; INTERNAL for what nobody foresaw."""
    for kind in type(error).__mro__:
        row = REFUSALS.get(kind)
        if row is not None:
            return row
    return INTERNAL


def etcd_words(error: Exception) -> tuple[str, Grpc, int]:
    """(message, gRPC code, HTTP status) as etcd's gateway answers."""
    row = refusal_of(error)
    text = str(error)
    message = text if row.etcd is None or text.startswith("etcdserver:") else row.etcd
    return message, row.grpc, HTTP_OF_GRPC[row.grpc]


def named_revision(error: Exception) -> int:
    """MM where it was compacted, that of the write where it is committed and pending; 0 for other errors."""
    if isinstance(error, store.Compacted):
        return error.minimal_revision
    return error.revision if isinstance(error, fencing.ReleasePending) else 0


def error_of(code: str, message: str, revision: int = 0) -> Exception:
    """The error that a code on the stream stands for; an unknown one becomes a MetastoreError with its text.

    `revision`: `named_revision` of the error."""
    kind = _BY_CODE.get(code)
    if kind is store.Compacted or kind is fencing.ReleasePending:
        return kind(message, revision)
    if kind is group.NotLeader:
        return group.Unavailable(message)
    return kind(message) if kind is not None else store.MetastoreError(f"{code}: {message}")


_BY_CODE: dict[str, type[Exception]] = {
    row.code: kind for kind, row in REFUSALS.items() if not issubclass(kind, topology.TopologyError)
}
