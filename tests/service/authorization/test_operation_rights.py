"""The rights that an operation of the catalog needs are those on the rows that it writes: no fewer, and no others.

Every plan is compared with `needs_of_operation`: each row that it writes or removes has to be covered, and each single
row for which a right is needed has to be one that the operation names, or that its plan reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.catalog import keys
from palisade.catalog.errors import CatalogError
from palisade.catalog.operations.all import KINDS
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind
from palisade.catalog.permissions import PermissionGrant, Privilege
from palisade.catalog.plan import CatalogPlan, CatalogRows, NeedsRange, NeedsRow
from palisade.metastore.requests import prefix_end
from palisade.metastore.results import KeyValue
from palisade.service.authorization.needs import EVERYTHING, Need, Needs
from palisade.service.authorization.operations import PLACES, needs_of_objects, needs_of_operation
from tests.support.catalog_world import CASES, CREDENTIAL, Operation
from tests.support.permission_world import covers

NeedsOf = Callable[[object, object], Needs]


def row(key: bytes, value: bytes) -> KeyValue:
    return KeyValue(key, value, 2, 2, 1, 0)


class Catalog:
    """The rows of a catalog, changed by plans that are carried out at once. `needs_of`: the rule that is checked."""

    def __init__(self, needs_of: NeedsOf = needs_of_operation) -> None:
        self.rows: dict[bytes, bytes] = {}
        self._needs_of = needs_of
        self._drawn = 0

    def do(self, name: str, given: Mapping[str, Any]) -> None:
        """Plan it, compare it, carry it out. Raises CatalogError."""
        kind = KINDS[name]
        fields = dict(given) | ({kind.secret: CREDENTIAL} if kind.secret else {})
        plan, read = self._plan(kind, kind.checked(fields))
        check(name, fields, plan, read, self._needs_of(name, fields))
        self._carry_out(plan)

    def _plan(self, kind: OperationKind, fields: dict[str, Any]) -> tuple[CatalogPlan, CatalogRows]:
        read = CatalogRows()
        self._drawn += 1
        drawn = Drawn(f"p{self._drawn}", f"o-{self._drawn}")
        while True:
            try:
                return kind.plan(fields, read, drawn), read
            except NeedsRow as needed:
                value = self.rows.get(needed.key)
                read.found[needed.key] = None if value is None else row(needed.key, value)
            except NeedsRange as needed:
                read.ranges[needed.prefix] = tuple(row(*each) for each in self._below(needed.prefix))

    def _below(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(each for each in self.rows.items() if each[0].startswith(prefix))

    def _carry_out(self, plan: CatalogPlan) -> None:
        for changes in (plan.prepare, plan.finish):
            for key, value in changes.items():
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
        for prefix in plan.destroy:
            for key, _ in self._below(prefix.encode()):
                del self.rows[key]


def check(name: str, fields: Mapping[str, Any], plan: CatalogPlan, read: CatalogRows, needs: Needs) -> None:
    assert {need.privilege for need in needs} <= {Privilege.CATALOG, Privilege.ADMIN}
    written = {*plan.prepare, *plan.finish}
    for key in written:
        assert any(covers(need, key) for need in needs), f"{name} {fields} writes {key!r} by {needs}"
    for prefix in (each.encode() for each in plan.destroy if not each.startswith(keys.DATA)):
        assert any(covers(need, prefix, prefix_end(prefix)) for need in needs), f"{name} {fields} empties {prefix!r}"
    named = {keys.at(place, fields[field]) for place, field in PLACES.get(name, ())}
    for need in needs:
        touched = need.range_end or need.key in written | read.found.keys() | named
        assert touched, f"{name} {fields} needs {need}, which it neither names nor reads nor writes"


@pytest.mark.parametrize(("before", "operation"), CASES, ids=[kind for _, (kind, _) in CASES])
def test_rights_of_each_operation_cover_the_rows_that_it_writes(before: list[Operation], operation: Operation) -> None:
    catalog = Catalog()
    for kind, fields in (*before, operation):
        catalog.do(kind, fields)


# Objects that a field names.

NAMES_IN: dict[str, tuple[str, bytes]] = {
    "database": ("a", keys.DATABASES),
    "table": ("a.b", keys.TABLES),
    "device": ("a.b", keys.DEVICES),
    "template": ("a", keys.TEMPLATES),
    "view": ("a.b", keys.VIEWS),
    "resource": ("a.b", keys.RESOURCES),
    "user": ("a", keys.USERS),
    "role": ("a", keys.ROLES),
}
"""Field -> a name, and the collection that it is in."""
PATHS_IN = {
    "set-template": keys.TEMPLATE_PATHS,
    "unset-template": keys.TEMPLATE_PATHS,
    "deactivate-template": keys.DEVICES,
    "set-ttl": keys.TTL,
    "unset-ttl": keys.TTL,
}
"""The field `path`, by operation."""


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"grant", "revoke"}))
def test_operation_needs_the_right_on_every_object_that_it_names(kind: str) -> None:
    """Also on those that it only reads: a role cannot be granted, nor a template used, without a right on it."""
    fields = {each.name: NAMES_IN[each.name][0] for each in KINDS[kind].fields if each.name in NAMES_IN}
    named = {keys.at(place, name) for name, place in map(NAMES_IN.__getitem__, fields)}
    if kind in PATHS_IN:
        fields["path"] = "a.b"
        named.add(keys.at(PATHS_IN[kind], "a.b"))
    needs = needs_of_operation(kind, {"to": "c", **fields})
    assert named
    assert EVERYTHING not in needs
    assert [key for key in named if not any(covers(need, key) for need in needs)] == []


def test_every_path_that_an_operation_names_is_in_a_collection() -> None:
    assert {kind for kind, found in KINDS.items() if "path" in {each.name for each in found.fields}} == set(PATHS_IN)


@pytest.mark.parametrize("below", ["plant", "plant.a"])
def test_list_of_objects_needs_the_right_to_read_the_object_and_everything_below(below: str) -> None:
    needs = needs_of_objects("tables", below)
    assert {need.privilege for need in needs} == {Privilege.READ}
    for name, listed in ((below, True), (f"{below}.b", True), (f"{below}b", False), ("other", False)):
        assert any(covers(need, keys.at(keys.TABLES, name)) for need in needs) == listed, name


def test_list_of_all_objects_needs_the_right_to_read_the_whole_collection() -> None:
    (need,) = needs_of_objects("tables", "")
    assert covers(need, keys.TABLES, prefix_end(keys.TABLES))


# Any operations, on few names, so that they meet; a table may be called as a database is.

NAMES = st.sampled_from(("a", "b"))
PATHS = st.builds("{}.{}".format, NAMES, NAMES)
SPEC = {"type": "int32"}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "database": NAMES,
    "table": PATHS,
    "device": PATHS,
    "view": PATHS,
    "resource": PATHS,
    "definition": NAMES,
    "path": NAMES | PATHS,
    "source": st.builds("{}.{}".format, PATHS, NAMES),
    "template": NAMES,
    "user": NAMES,
    "role": NAMES,
    "column": NAMES,
    "to": NAMES,
    "type": st.sampled_from(("int64", "double")),
    "category": st.just("field"),
    "columns": st.just([{"name": "a", **SPEC}]),
    "properties": st.just({"owner": "a"}),
    "devices": st.just(["a"]),
    "aligned": st.booleans(),
    "encoding": st.just("gorilla"),
    "compression": st.just("lz4"),
    "ttl_ms": st.integers(1, 5),
    "password": st.just("correct horse"),
    "subject": st.builds("{}:{}".format, st.sampled_from(("user", "role")), NAMES),
    "privilege": st.sampled_from([each.value for each in Privilege]),
    "prefix": st.sampled_from(("", "/a/", "palisade/catalog/tables/a/")),
}
SERIES = {"series": st.just([{"name": "a", **SPEC}]), "many": st.just(["a"]), "text": NAMES}
"""By the shape of the field `series`: with their types, names, one name."""


def value_of(field: Field) -> st.SearchStrategy[Any]:
    """A new field needs a line above."""
    return SERIES[field.shape] if field.name == "series" else VALUES[field.name]


def fields_of(kind: OperationKind) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: value_of(field) for field in kind.fields if field.required}
    optional = {field.name: value_of(field) for field in kind.fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional)


OPERATIONS = st.one_of([st.tuples(st.just(name), fields_of(kind)) for name, kind in KINDS.items()])
BEGINNING: tuple[Operation, ...] = (
    ("create-database", {"database": "a"}),
    ("create-database", {"database": "b"}),
    ("create-table", {"table": "a.a", "columns": [{"name": "a", **SPEC}]}),
    ("create-device", {"device": "a.b", "series": [{"name": "a", **SPEC}]}),
    ("create-view", {"view": "a.b", "source": "a.b.a"}),
    ("create-resource", {"resource": "a.b", "definition": "a"}),
    ("create-template", {"template": "a", "series": [{"name": "b", **SPEC}]}),
    ("set-template", {"template": "a", "path": "a"}),
    ("activate-template", {"device": "a.a"}),
    ("set-ttl", {"path": "a", "ttl_ms": 1}),
    ("create-user", {"user": "a"}),
    ("create-role", {"role": "a"}),
    ("grant-role", {"role": "a", "user": "a"}),
)


def check_history(history: Iterable[Operation], needs_of: NeedsOf = needs_of_operation) -> int:
    """How many operations were not refused."""
    catalog = Catalog(needs_of)
    for kind, fields in BEGINNING:
        catalog.do(kind, fields)
    done = 0
    for kind, fields in history:
        try:
            catalog.do(kind, fields)
        except CatalogError:
            continue
        done += 1
    return done


@settings(deadline=None)
@given(st.lists(OPERATIONS, max_size=10))
def test_rights_of_any_operations_cover_the_rows_that_they_write(history: list[Operation]) -> None:
    check_history(history)


def is_found(needs_of: NeedsOf) -> bool:
    """Whether the property above finds this rule wrong."""

    @settings(max_examples=400, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
    @given(st.lists(OPERATIONS, max_size=10))
    def holds(history: list[Operation]) -> None:
        check_history(history, needs_of)

    try:
        holds()
    except AssertionError:
        return True
    return False


def with_a_bare_name(kind: object, fields: Any) -> Needs:
    """The rule of 3c119f2: `to` as if it were a path."""
    needs = needs_of_operation(kind, fields)
    if kind != "rename-table":
        return needs
    return needs[0], Need(Privilege.CATALOG, keys.at(keys.TABLES, fields["to"]))


def without_the_second(kind: object, fields: Any) -> Needs:
    """The rule of 3c119f2: a new password was a matter of the user's row alone."""
    needs = needs_of_operation(kind, fields)
    return needs[:1] if kind in ("create-user", "set-password", "drop-user", "drop-role") else needs


def with_its_row_alone(kind: object, fields: Any) -> Needs:
    needs = needs_of_operation(kind, fields)
    return needs[:1] if kind == "drop-database" else needs


def with_more_than_it_needs(kind: object, fields: Any) -> Needs:
    return (*needs_of_operation(kind, fields), Need(Privilege.CATALOG, keys.TABLES + b"a"))


WRONG = (with_a_bare_name, without_the_second, with_its_row_alone, with_more_than_it_needs)


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.__name__)
def test_planted_rule_is_found_wrong(rule: NeedsOf) -> None:
    assert is_found(rule)


# What users may do by their grants.


def may(kind: str, fields: Mapping[str, Any], *prefixes: str) -> bool:
    """With `catalog` on these prefixes."""
    grants = [PermissionGrant("catalog", prefix) for prefix in prefixes]
    return all(
        any(grant.allows(need.privilege, need.key, need.range_end) for grant in grants)
        for need in needs_of_operation(kind, fields)
    )


def test_rename_table_needs_the_right_on_the_new_name_in_the_same_database() -> None:
    """Issue 16: with `catalog` on `tables/stolen`, a user made `plant.stolen`, which it may not create."""
    rename = {"table": "plant.a", "to": "b"}
    assert may("rename-table", rename, "palisade/catalog/tables/plant/")
    assert not may("rename-table", rename, "palisade/catalog/tables/plant/a", "palisade/catalog/tables/b")
    assert not may("rename-table", rename, "palisade/catalog/tables/plant/a")


@pytest.mark.parametrize("kind", ["grant", "revoke"])
def test_grant_needs_admin_on_the_permissions_and_on_everything_that_it_grants(kind: str) -> None:
    """With ADMIN on the permissions alone, a user would give itself every key."""
    permissions = Need(Privilege.ADMIN, keys.PERMISSIONS, prefix_end(keys.PERMISSIONS))
    fields = {"subject": "user:a", "privilege": "read"}
    for prefix, granted in (("/a/", Need(Privilege.ADMIN, b"/a/", b"/a0")), ("", EVERYTHING), (1, EVERYTHING)):
        assert needs_of_operation(kind, {**fields, "prefix": prefix}) == (permissions, granted)


@pytest.mark.parametrize("fields", [{"table": "a.a"}, {"table": 1, "to": "b"}, {"to": "b"}, {"table": "a.b", "to": 1}])
def test_rename_table_with_unreadable_fields_needs_everything(fields: dict[str, Any]) -> None:
    assert EVERYTHING in needs_of_operation("rename-table", fields)


def test_drop_database_needs_the_right_on_everything_in_it() -> None:
    places = [f"palisade/catalog/{place}/plant" for place in ("databases", "ttl", "template-paths")]
    inside = [f"{place.decode()}plant/" for place in keys.INSIDE]
    drop = {"database": "plant"}
    assert may("drop-database", drop, *places, *inside)
    assert not may("drop-database", drop, "palisade/catalog/databases/plant")
    for missing in inside:
        if not any(missing.startswith(place) for place in places):
            assert not may("drop-database", drop, *places, *(each for each in inside if each != missing)), missing
