"""Operations on device schemas: create, alter and delete devices and their time series. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palisade.catalog import keys
from palisade.catalog.device import SERIES_MAX, Device, many, series_list, series_names
from palisade.catalog.errors import AlreadyThere, NotAllowed, NotThere
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request, database_at, path_lock
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import a_choice, a_flag, a_name, a_path
from palisade.catalog.template import Template
from palisade.catalog.types import COMPRESSIONS, ENCODINGS, TYPES

DEVICE = Field("device", a_path(2), "its path, as database.node.node")
ONE_SERIES = Field("series", a_name, "the name of the time series")
SERIES_LIST = Field("series", series_list, "name:type, or name:type:encoding:compression", "series")


def device_at(rows: CatalogRows, path: str) -> Device:
    """Raises NotThere, also for a device that is being deleted."""
    database_at(rows, path)
    found = rows.read(keys.at(keys.DEVICES, path), Device.from_bytes)
    if found is None:
        raise NotThere(f"there is no device {path}; see the list of devices")
    if found.dropping:
        raise NotThere(f"device {path} is being deleted by procedure {found.dropping}")
    return found


def create(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    path = request["device"]
    database = database_at(rows, path)
    if rows.get(keys.at(keys.DEVICES, path)) is not None:
        raise AlreadyThere(f"device {path} already exists: add time series to it with add-series")
    empty = Device.of(path, drawn.object_id, database, aligned=request["aligned"])
    made = empty.with_series(many(request["series"]))
    return CatalogPlan({made.key: made.to_bytes()}, made=(made.data,))


def add_series(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = device_at(rows, request["device"])
    added = many(request["series"])
    if found.template:
        inherited = template_at(rows, found.template)
        taken = {each.name for each in inherited.series}
        for each in added:
            if each.name in taken:
                raise AlreadyThere(f"series: {found.path} already has {each.name} from its template {inherited.name}")
    return CatalogPlan({found.key: found.with_series(added).to_bytes()})


def template_at(rows: CatalogRows, name: str) -> Template:
    """Raises NotThere."""
    found = rows.read(keys.at(keys.TEMPLATES, name), Template.from_bytes)
    if found is None:
        raise NotThere(f"there is no template {name}; see the list of templates")
    return found


def delete_device(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = device_at(rows, request["device"])
    hidden = replace(found, dropping=drawn.procedure)
    return CatalogPlan({found.key: hidden.to_bytes()}, destroy=(found.data,), finish={found.key: None})


def delete_series(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    """Marks the series as unusable. Their values are removed after PROCEED; then the names are free again."""
    found = device_at(rows, request["device"])
    if found.deleting:
        raise NotAllowed(f"time series of {found.path} are already being deleted: wait for that procedure")
    gone = [found.one(name).name for name in request["series"]]
    without = found.without_series(gone)
    stays = bool(without.series or without.template)
    return CatalogPlan(
        {found.key: replace(found, deleting=tuple(gone)).to_bytes()},
        destroy=tuple(f"{found.data}{name}/" for name in gone) if stays else (found.data,),
        finish={found.key: without.to_bytes() if stays else None},
    )


def changed(change: Callable[[Device, Request], Device]) -> Callable[[Request, CatalogRows, Drawn], CatalogPlan]:
    def plan(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
        found = device_at(rows, request["device"])
        return CatalogPlan({found.key: change(found, request).to_bytes()})

    return plan


def locks(request: Request) -> tuple[str, ...]:
    return (path_lock(request["device"]),)


KINDS = (
    OperationKind(
        "create-device",
        "Create the schema of a device: its time series.",
        (DEVICE, SERIES_LIST, Field("aligned", a_flag, "its series are written together", "flag", False, False)),
        locks,
        create,
    ),
    OperationKind("add-series", "Add time series to a device.", (DEVICE, SERIES_LIST), locks, add_series),
    OperationKind(
        "alter-series-type",
        "Make the type of a time series wider.",
        (DEVICE, ONE_SERIES, Field("type", a_choice(TYPES), f"one of {', '.join(TYPES)}")),
        locks,
        changed(lambda device, request: device.retyped(request["series"], request["type"])),
    ),
    OperationKind(
        "alter-encoding",
        "Change encoding or compression of a time series, for later writes.",
        (
            DEVICE,
            ONE_SERIES,
            Field("encoding", a_choice(ENCODINGS), f"one of {', '.join(ENCODINGS)}", required=False),
            Field("compression", a_choice(COMPRESSIONS), f"one of {', '.join(COMPRESSIONS)}", required=False),
        ),
        locks,
        changed(
            lambda device, request: device.encoded(
                request["series"], request.get("encoding"), request.get("compression")
            )
        ),
    ),
    OperationKind(
        "delete-series",
        "Delete time series of a device with their values.",
        (DEVICE, Field("series", series_names, f"1 to {SERIES_MAX} names", "many")),
        locks,
        delete_series,
    ),
    OperationKind("delete-device", "Delete a device with all its values.", (DEVICE,), locks, delete_device),
)
