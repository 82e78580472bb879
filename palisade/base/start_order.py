"""The order in which components start: each one after everything that it needs. Pure.

The order depends only on the declarations: of the components that could start next, the one declared first does. Thus
all starts of a node have the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palisade.base.errors import PalisadeError


class ComponentError(PalisadeError):
    """Root of the errors of components."""

    code = "component-failed"


class WiringError(ComponentError):
    """The declarations have no valid order. A fault of the program: no retry helps."""


def start_order(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Names in start order. `needs`: component -> the components that it depends on. Raises WiringError."""
    for name, wanted in needs.items():
        for other in wanted:
            if other not in needs:
                raise WiringError(f"component {name} needs {other}, which was not declared: declare it, or correct it")
    order: dict[str, None] = {}
    for name in needs:
        _visit(name, needs, order, path=())
    return tuple(order)


def _visit(name: str, needs: Mapping[str, Sequence[str]], order: dict[str, None], path: tuple[str, ...]) -> None:
    if name in order:
        return
    if name in path:
        circle = " -> ".join([*path[path.index(name) :], name])
        raise WiringError(f"these components depend on each other in a circle: {circle}; remove one dependency")
    for other in needs[name]:
        _visit(other, needs, order, (*path, name))
    order[name] = None
