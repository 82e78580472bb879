"""The root of all errors of Palisade: the code of an error on the wire, and whether a retry helps.

`code` is stable and kebab-case; clients and scripts may rely on it. `retry` states whether the same request may be
sent again. A class inherits both from its base, so a base states what holds for all of its errors.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar


class PalisadeError(Exception):
    """Root. The text of an error names the key, revision, file or node, and the remedy."""

    code: ClassVar[str] = "internal"
    retry: ClassVar[bool] = False


class ConfigError(PalisadeError):
    """An invalid value: the text names the option, the value and the remedy. Nothing was started."""

    code = "bad-configuration"


E = TypeVar("E", bound=PalisadeError)


def by_code(root: type[E]) -> dict[str, type[E]]:
    """`root` and the classes derived from it directly, each by its code."""
    return {kind.code: kind for kind in (root, *root.__subclasses__())}
