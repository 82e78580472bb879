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


TRY_AGAIN = "; try again"
ELSEWHERE = ", or use another node"
"""Follows TRY_AGAIN if only this node cannot execute the request."""


def without_retry_advice(error: PalisadeError) -> str:
    """The text of the error for a notice, while the program itself repeats the request."""
    return str(error).replace(TRY_AGAIN + ELSEWHERE, "").replace(TRY_AGAIN, "")


class ConfigError(PalisadeError):
    """An invalid value: the text names the option, the value and the remedy. Nothing was started.

    `option`: its name; empty if the reason is not the value of one option. `origin`: where its value came from.
    """

    code = "bad-configuration"

    def __init__(self, reason: str, *, option: str = "", origin: str = "") -> None:
        source = f" (from {origin})" if origin else ""
        super().__init__(f"{option}{source}: {reason}" if option else reason)
        self.reason, self.option = reason, option


E = TypeVar("E", bound=PalisadeError)


def by_code(root: type[E]) -> dict[str, type[E]]:
    """`root` and the classes derived from it directly, each by its code."""
    return {kind.code: kind for kind in (root, *root.__subclasses__())}
