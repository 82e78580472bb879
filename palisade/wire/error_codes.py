"""The representation of each error: one table for HTTP, etcd's JSON paths and the stream.

Pure. The error itself has its stable code (the problem type of RFC 9457, also sent on the stream) and its retry flag. A
row adds the HTTP status and title of /v1, and for /v3 the gRPC code with etcd's text (etcd 3.4,
etcdserver/api/v3rpc/rpctypes/error.go).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from palisade.base.errors import PalisadeError
from palisade.catalog import errors as catalog
from palisade.metastore import errors as store
from palisade.raftgroup import errors as group
from palisade.vault import errors as vault
from palisade.wire import auth_errors as authorization
from palisade.wire import fencing_errors as fencing
from palisade.wire import scenario_errors as scenarios
from palisade.wire import segment_errors
from palisade.wire import topology_errors as topology


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
"""The HTTP status that grpc-gateway 1.9 assigns to a gRPC code."""


class BadRequest(PalisadeError):
    """An unreadable request: the text names the field and its fault."""

    code = "bad-request"


class NotInitialized(group.Unavailable):
    """The node is not part of a cluster yet. Nothing was done."""


NOT_INITIALIZED = "the node waits to be initialized: see 'palisade init --help'"


class PreconditionFailed(PalisadeError):
    """If-Match or If-None-Match does not hold. Nothing was changed."""

    code = "precondition-failed"


class WithoutCluster(PalisadeError):
    """The node runs without its cluster, from its vault, and the request needs the cluster. Nothing was changed."""

    code = "standalone"
    retry = False


class NoMember(PalisadeError):
    """The node is not a member of the Raft group, and the request needs a member. Nothing was changed."""

    code = "not-a-member"
    retry = False


class WrongPort(group.Unavailable):
    """A stream client has reached another port than a stream. The text names the port to use. Nothing was done."""

    code = "wrong-port"
    retry = False


class ErrorRow(NamedTuple):
    """`etcd` None: the text of the error itself, because etcd has no such error."""

    status: int
    title: str
    grpc: Grpc
    etcd: str | None


class Refusal(NamedTuple):
    """`code`: that of the error. The rest as in `ErrorRow`."""

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

SHOWN: dict[type[PalisadeError], ErrorRow] = {
    # Before the classes whose codes they share: on the stream the code means that class.
    NotInitialized: ErrorRow(503, "This node waits to be initialized", _DOWN, None),
    segment_errors.BadSegment: ErrorRow(400, "Malformed request", _INVALID, None),
    BadRequest: ErrorRow(400, "Malformed request", _INVALID, None),
    PreconditionFailed: ErrorRow(412, "Precondition failed", _INVALID, None),
    WithoutCluster: ErrorRow(503, "This node runs without its cluster", _DOWN, None),
    NoMember: ErrorRow(421, "This node is not a member", Grpc.FAILED_PRECONDITION, None),
    WrongPort: ErrorRow(421, "Wrong port", _STATE, None),
    authorization.NoCredentials: ErrorRow(401, "Sign-in required", _INVALID, "etcdserver: user name is empty"),
    authorization.WrongPassword: ErrorRow(
        401,
        "Wrong user name or password",
        _INVALID,
        "etcdserver: authentication failed, invalid user ID or password",
    ),
    authorization.Unauthenticated: ErrorRow(
        401, "Sign in again", Grpc.UNAUTHENTICATED, "etcdserver: invalid auth token"
    ),
    authorization.PermissionDenied: ErrorRow(
        403, "Permission denied", Grpc.PERMISSION_DENIED, "etcdserver: permission denied"
    ),
    authorization.NoUserYet: ErrorRow(503, "The cluster has no user yet", _DOWN, None),
    authorization.PermissionsUnknown: ErrorRow(503, "Permissions cannot be verified", _DOWN, None),
    authorization.TooManyLogins: ErrorRow(429, "Later", Grpc.RESOURCE_EXHAUSTED, None),
    authorization.AuthorizationOff: ErrorRow(
        409,
        "Authorization is off",
        Grpc.FAILED_PRECONDITION,
        "etcdserver: authentication is not enabled",
    ),
    store.KeyEmpty: ErrorRow(400, "No key given", _INVALID, "etcdserver: key is not provided"),
    store.KeyTooLarge: ErrorRow(413, "The key is too large", _INVALID, _TOO_LARGE),
    store.ValueTooLarge: ErrorRow(413, "The value is too large", _INVALID, _TOO_LARGE),
    store.RequestTooLarge: ErrorRow(413, "The request is too large", _INVALID, _TOO_LARGE),
    store.TooManyOperations: ErrorRow(413, "Too many operations", _INVALID, _TOO_MANY),
    store.DuplicateKey: ErrorRow(
        400, "A key is written twice", _INVALID, "etcdserver: duplicate key given in txn request"
    ),
    store.InvalidRequest: ErrorRow(400, "Invalid request", _INVALID, None),
    store.KeyNotFound: ErrorRow(404, "No such key", _INVALID, "etcdserver: key not found"),
    store.Compacted: ErrorRow(410, "The revision is compacted", _RANGE, _COMPACTED),
    store.FutureRevision: ErrorRow(400, "The revision does not exist yet", _RANGE, _FUTURE),
    store.LeaseNotFound: ErrorRow(404, "No such lease", Grpc.NOT_FOUND, "etcdserver: requested lease not found"),
    store.LeaseExists: ErrorRow(
        409, "The lease exists already", Grpc.FAILED_PRECONDITION, "etcdserver: lease already exists"
    ),
    store.LeaseTtlInvalid: ErrorRow(400, "The time to live is out of range", _RANGE, "etcdserver: too large lease TTL"),
    store.QuotaExceeded: ErrorRow(507, "The store is full", Grpc.RESOURCE_EXHAUSTED, _NO_SPACE),
    store.TooManyPins: ErrorRow(503, "Too many pins", Grpc.RESOURCE_EXHAUSTED, None),
    store.ResultEvicted: ErrorRow(409, "The first result is no longer stored", _INVALID, None),
    vault.VaultDamaged: ErrorRow(500, "Stored data is damaged", Grpc.DATA_LOSS, None),
    vault.VaultError: ErrorRow(503, "The vault of this node is unavailable", _DOWN, None),
    vault.Fenced: ErrorRow(503, "This node is fenced", _DOWN, None),
    vault.Pending: ErrorRow(503, "A change is not released yet", _DOWN, None),
    vault.Denied: ErrorRow(403, "Denied while the node is fenced", Grpc.PERMISSION_DENIED, None),
    vault.NotReached: ErrorRow(503, "The vault has not reached the revision", _DOWN, None),
    store.StoreCorrupt: ErrorRow(500, "Stored data is damaged", Grpc.DATA_LOSS, "etcdserver: corrupt cluster"),
    store.MetastoreError: ErrorRow(400, "The request was refused", _INVALID, None),
    group.NotLeader: ErrorRow(503, "This node is not the leader", _DOWN, "etcdserver: not leader"),
    group.Unavailable: ErrorRow(503, "No leader with a majority", _DOWN, "etcdserver: no leader"),
    group.OutcomeUnknown: ErrorRow(
        504, "The outcome is unknown", Grpc.DEADLINE_EXCEEDED, "etcdserver: request timed out"
    ),
    fencing.ReleasePending: ErrorRow(504, "Committed, and not released yet", Grpc.DEADLINE_EXCEEDED, None),
    fencing.ReadPending: ErrorRow(503, "A change is not released yet", _DOWN, None),
    fencing.ReservedKey: ErrorRow(403, "The key belongs to the cluster", _INVALID, None),
    group.MembershipRefused: ErrorRow(409, "Membership change refused", Grpc.FAILED_PRECONDITION, None),
    topology.JoinRejected: ErrorRow(403, "The node is rejected", Grpc.FAILED_PRECONDITION, None),
    topology.AlreadyInitialized: ErrorRow(409, "The cluster is already initialized", Grpc.FAILED_PRECONDITION, None),
    topology.JoinLater: ErrorRow(503, "The node cannot join yet", _DOWN, None),
    segment_errors.NoSuchSegment: ErrorRow(404, "Segment not on this node", Grpc.NOT_FOUND, None),
    segment_errors.UnknownSegment: ErrorRow(404, "No such segment", Grpc.NOT_FOUND, None),
    segment_errors.NoRows: ErrorRow(409, "No rows in the segment", _STATE, None),
    segment_errors.SegmentsUnavailable: ErrorRow(503, "Segments have no server", _DOWN, None),
    segment_errors.BrokerNotSynced: ErrorRow(503, "The segments are not read yet", _DOWN, None),
    segment_errors.NoSuchDataSource: ErrorRow(404, "No such data source", Grpc.NOT_FOUND, None),
    segment_errors.PublicationOvertaken: ErrorRow(409, "Another change came first", _STATE, None),
    segment_errors.RealtimeRefused: ErrorRow(409, "Rows refused", _STATE, None),
    segment_errors.RealtimeFull: ErrorRow(409, "The segment is full", _STATE, None),
    segment_errors.RealtimeNotStored: ErrorRow(507, "The rows cannot be stored", Grpc.RESOURCE_EXHAUSTED, None),
    segment_errors.RealtimeDamaged: ErrorRow(500, "Stored rows are damaged", Grpc.DATA_LOSS, None),
    segment_errors.RealtimeOpening: ErrorRow(504, "The segment is still being opened", Grpc.DEADLINE_EXCEEDED, None),
    segment_errors.NotIngesting: ErrorRow(503, "This node cannot acknowledge rows or open segments now", _DOWN, None),
    scenarios.NoSuchScenario: ErrorRow(404, "No such scenario", Grpc.NOT_FOUND, None),
    scenarios.ScenarioRuns: ErrorRow(409, "Another scenario is running", Grpc.FAILED_PRECONDITION, None),
    scenarios.ScenariosOff: ErrorRow(403, "Scenarios are off", Grpc.FAILED_PRECONDITION, None),
    catalog.BadField: ErrorRow(400, "Invalid field", _INVALID, None),
    catalog.NotThere: ErrorRow(404, "No such object", Grpc.NOT_FOUND, None),
    catalog.AlreadyThere: ErrorRow(409, "The object already exists", _STATE, None),
    catalog.NotAllowed: ErrorRow(409, "The object does not allow this change now", _STATE, None),
    catalog.Busy: ErrorRow(409, "Another procedure is changing the object", _DOWN, None),
    catalog.RolledBack: ErrorRow(409, "The change was rolled back", _STATE, None),
    catalog.DamagedRow: ErrorRow(500, "A row of the catalog is damaged", Grpc.DATA_LOSS, None),
    catalog.NewerRow: ErrorRow(500, "A row of the catalog has a newer format", Grpc.UNIMPLEMENTED, None),
    catalog.NoSuchProcedure: ErrorRow(404, "No such procedure", Grpc.NOT_FOUND, None),
    catalog.ProcedureDiffers: ErrorRow(409, "The id belongs to another operation", _STATE, None),
    catalog.NotCancellable: ErrorRow(409, "The procedure cannot be cancelled", _STATE, None),
    catalog.BadRows: ErrorRow(400, "Rows that do not fit", _INVALID, None),
    catalog.CatalogError: ErrorRow(409, "Refused by the catalog", _STATE, None),
    group.MemberRemoved: ErrorRow(503, "This node was removed from the cluster", _DOWN, None),
    group.NodeFailed: ErrorRow(503, "This node has stopped", _DOWN, "etcdserver: server stopped"),
}
REFUSALS: dict[type[Exception], Refusal] = {kind: Refusal(kind.code, *shown) for kind, shown in SHOWN.items()}
INTERNAL = Refusal("internal", 500, "Internal error", Grpc.INTERNAL, "unexpected error; see the log of the node")


def refusal_of(error: Exception) -> Refusal:
    """The row of an error, or of its nearest base class; INTERNAL for unexpected errors."""
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
    """MM for a compacted revision, the revision of a write that is committed and pending; 0 for other errors."""
    if isinstance(error, store.Compacted):
        return error.minimal_revision
    return error.revision if isinstance(error, fencing.ReleasePending) else 0


def error_of(code: str, message: str, revision: int = 0) -> Exception:
    """The error of a code on the stream; for an unknown code a MetastoreError with its text.

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
