"""Operations on templates: create, set at paths, activate at devices, and the reverse. Pure.

At most one template is set on the path from a database to a device, so precedence is never ambiguous.
"""

from __future__ import annotations

from dataclasses import replace

from palisade.catalog import keys
from palisade.catalog.device import Device, many, series_list
from palisade.catalog.errors import AlreadyThere, NotAllowed, NotThere
from palisade.catalog.operations.devices import DEVICE, template_at
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request, database_at, path_lock
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import a_name, a_path
from palisade.catalog.template import Template, TemplatePath

TEMPLATE = Field("template", a_name, "its name")
PATH = Field("path", a_path(), "where, as database.node")
DEACTIVATED_MAX = 100


def create(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    made = Template(request["template"], many(request["series"]))
    if rows.get(made.key) is not None:
        raise AlreadyThere(f"template {made.name} already exists")
    return CatalogPlan({made.key: made.to_bytes()})


def drop(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = template_at(rows, request["template"])
    for row in rows.below(keys.TEMPLATE_PATHS):
        place = TemplatePath.from_bytes(row.key, row.value)
        if place.template == found.name:
            raise NotAllowed(f"template {found.name} is set at {place.path}: unset it there first")
    return CatalogPlan({found.key: None})


def set_(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    path = request["path"]
    database_at(rows, path)
    found = template_at(rows, request["template"])
    for place in (*keys.ancestors(path), path):
        other = rows.read(keys.at(keys.TEMPLATE_PATHS, place), TemplatePath.from_bytes)
        if other is not None:
            raise AlreadyThere(f"path: template {other.template} is set at {other.path}: unset it there first")
    for row in rows.below(keys.below(keys.TEMPLATE_PATHS, path)):
        raise AlreadyThere(f"path: a template is set below, at {keys.path_of(keys.TEMPLATE_PATHS, row.key)}")
    made = TemplatePath(path, found.name)
    return CatalogPlan({made.key: made.to_bytes()})


def unset(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    path, name = request["path"], request["template"]
    database_at(rows, path)
    found = rows.read(keys.at(keys.TEMPLATE_PATHS, path), TemplatePath.from_bytes)
    if found is None or found.template != name:
        raise NotThere(f"path: template {name} is not set at {path}")
    for device in devices_with_template(rows, path):
        raise NotAllowed(f"template {name} is active at {device.path}: deactivate it below {path} first")
    return CatalogPlan({found.key: None})


def activate(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    path = request["device"]
    database = database_at(rows, path)
    template = template_for(rows, path)
    found = rows.read(keys.at(keys.DEVICES, path), Device.from_bytes)
    if found is not None and (found.dropping or found.deleting):
        raise NotAllowed(f"device {path} or some of its series are being deleted: wait for that procedure")
    if found is not None and found.template:
        raise AlreadyThere(f"template {found.template} is already active at {path}")
    device = found or Device.of(path, drawn.object_id, database)
    own = {each.name for each in device.series}
    for each in template.series:
        if each.name in own:
            raise AlreadyThere(
                f"device {path} has its own time series {each.name}, which template {template.name} also defines"
            )
    made = () if found is not None else (device.data,)
    return CatalogPlan({device.key: replace(device, template=template.name).to_bytes()}, made=made)


def template_for(rows: CatalogRows, path: str) -> Template:
    """The template that is set at the path or above it. Raises NotThere."""
    for place in (path, *reversed(keys.ancestors(path))):
        found = rows.read(keys.at(keys.TEMPLATE_PATHS, place), TemplatePath.from_bytes)
        if found is not None:
            return template_at(rows, found.template)
    raise NotThere(f"no template is set at {path} or above it: set one first")


def devices_with_template(rows: CatalogRows, path: str) -> list[Device]:
    """At the path and below it."""
    itself = rows.read(keys.at(keys.DEVICES, path), Device.from_bytes) if "." in path else None
    inside = [Device.from_bytes(row.key, row.value) for row in rows.below(keys.below(keys.DEVICES, path))]
    return [device for device in ([itself] if itself else []) + inside if device.template and not device.dropping]


def deactivate(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    """Marks the series of the template at every device. After PROCEED their values are removed, then the marks. A
    device without other series is removed as well."""
    path = request["path"]
    database_at(rows, path)
    found = devices_with_template(rows, path)
    if not found:
        raise NotThere(f"path: no template is active at {path} or below it")
    if len(found) > DEACTIVATED_MAX:
        raise NotAllowed(f"path: templates are active at {len(found)} devices below {path}, the limit is "
                         f"{DEACTIVATED_MAX}: name a longer path")  # fmt: skip
    prepare: dict[bytes, bytes | None] = {}
    finish: dict[bytes, bytes | None] = {}
    destroy: list[str] = []
    for device in found:
        if device.deleting:
            raise NotAllowed(f"time series of {device.path} are being deleted: wait for that procedure")
        names = tuple(each.name for each in template_at(rows, device.template).series)
        after = replace(device, template="")
        prepare[device.key] = replace(after, deleting=names).to_bytes()
        finish[device.key] = after.to_bytes() if after.series else None
        destroy += [f"{device.data}{name}/" for name in names] if after.series else [device.data]
    return CatalogPlan(prepare, tuple(destroy), finish)


def template_lock(name: str) -> str:
    return f"templates/{name}/"


def own_lock(request: Request) -> tuple[str, ...]:
    return (template_lock(request["template"]),)


def both_locks(request: Request) -> tuple[str, ...]:
    return (template_lock(request["template"]), path_lock(request["path"]))


KINDS = (
    OperationKind(
        "create-template",
        "Create a template: time series that many devices share.",
        (TEMPLATE, Field("series", series_list, "name:type, or name:type:encoding:compression", "series")),
        own_lock,
        create,
    ),
    OperationKind("drop-template", "Drop a template that is set nowhere.", (TEMPLATE,), own_lock, drop),
    OperationKind("set-template", "Set a template at a path.", (TEMPLATE, PATH), both_locks, set_),
    OperationKind("unset-template", "Unset a template at a path.", (TEMPLATE, PATH), both_locks, unset),
    OperationKind(
        "activate-template",
        "Give a device the series of the template that is set at its path or above it.",
        (DEVICE,),
        lambda request: (path_lock(request["device"]),),
        activate,
    ),
    OperationKind(
        "deactivate-template",
        "Remove the series of templates, with their values, from the devices at a path and below it.",
        (PATH,),
        lambda request: (path_lock(request["path"]),),
        deactivate,
    ),
)
