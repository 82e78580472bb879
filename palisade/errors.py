"""Every error that a client, a reader or the embedded store raises.

`retry` of an error: whether the same call may succeed later. After `Unavailable` and its kin nothing was done; after
`OutcomeUnknown` a write may be applied or not; `ReleasePending` is raised for a write that is committed and not yet
visible everywhere.
"""

from __future__ import annotations

from palisade.base.errors import ConfigError, PalisadeError
from palisade.catalog.errors import (
    AlreadyThere,
    BadField,
    Busy,
    CatalogError,
    DamagedRow,
    NoSuchProcedure,
    NotAllowed,
    NotCancellable,
    NotThere,
    ProcedureDiffers,
    RolledBack,
)
from palisade.client.claims import NotAcquired
from palisade.client.lease import LeaseLost
from palisade.client.loop_thread import ClientClosed
from palisade.client.watch import HistoryBroken
from palisade.metastore.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    InvalidRequest,
    KeyEmpty,
    KeyNotFound,
    KeyTooLarge,
    LeaseExists,
    LeaseNotFound,
    LeaseTtlInvalid,
    MetastoreError,
    QuotaExceeded,
    RequestTooLarge,
    ResultEvicted,
    StoreCorrupt,
    SystemConflict,
    TooManyOperations,
    TooManyPins,
    ValueTooLarge,
)
from palisade.node.data_dir_marker import FolderError
from palisade.raftgroup.errors import (
    DataDirectoryError,
    JournalCorrupt,
    MembershipRefused,
    NodeFailed,
    NotLeader,
    OutcomeUnknown,
    RaftError,
    Unavailable,
)
from palisade.vault.errors import (
    Denied,
    Fenced,
    NotReached,
    Pending,
    ReadRefused,
    VaultDamaged,
    VaultError,
    VaultForeign,
    VaultNewer,
    VaultUnusable,
)
from palisade.wire.auth_errors import (
    AuthorizationError,
    AuthorizationOff,
    NoCredentials,
    PermissionDenied,
    PermissionsUnknown,
    TooManyLogins,
    Unauthenticated,
    WrongPassword,
)
from palisade.wire.error_codes import BadRequest, NoMember, PreconditionFailed, WithoutCluster
from palisade.wire.fencing_errors import ReadPending, ReleaseError, ReleasePending, ReservedKey
from palisade.wire.segment_errors import NoSuchPartition

__all__ = [
    "AlreadyThere",
    "AuthorizationError",
    "AuthorizationOff",
    "BadField",
    "BadRequest",
    "Busy",
    "CatalogError",
    "ClientClosed",
    "Compacted",
    "ConfigError",
    "DamagedRow",
    "DataDirectoryError",
    "Denied",
    "DuplicateKey",
    "Fenced",
    "FolderError",
    "FutureRevision",
    "HistoryBroken",
    "InvalidRequest",
    "JournalCorrupt",
    "KeyEmpty",
    "KeyNotFound",
    "KeyTooLarge",
    "LeaseExists",
    "LeaseLost",
    "LeaseNotFound",
    "LeaseTtlInvalid",
    "MembershipRefused",
    "MetastoreError",
    "NoCredentials",
    "NoMember",
    "NoSuchPartition",
    "NoSuchProcedure",
    "NodeFailed",
    "NotAcquired",
    "NotAllowed",
    "NotCancellable",
    "NotLeader",
    "NotReached",
    "NotThere",
    "OutcomeUnknown",
    "PalisadeError",
    "Pending",
    "PermissionDenied",
    "PermissionsUnknown",
    "PreconditionFailed",
    "ProcedureDiffers",
    "QuotaExceeded",
    "RaftError",
    "ReadPending",
    "ReadRefused",
    "ReleaseError",
    "ReleasePending",
    "RequestTooLarge",
    "ReservedKey",
    "ResultEvicted",
    "RolledBack",
    "StoreCorrupt",
    "SystemConflict",
    "TooManyLogins",
    "TooManyOperations",
    "TooManyPins",
    "Unauthenticated",
    "Unavailable",
    "ValueTooLarge",
    "VaultDamaged",
    "VaultError",
    "VaultForeign",
    "VaultNewer",
    "VaultUnusable",
    "WithoutCluster",
    "WrongPassword",
]
