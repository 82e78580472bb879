"""The types of options and arguments that are numbers. Errors are in plain words."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import click

T = TypeVar("T", int, float)
NEGATIVE = re.compile(r"-\.?\d")


class AnyWholeNumber(click.types.IntParamType):
    """A whole number, whose range the command checks."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r:.60} is not a whole number", param, ctx)


WHOLE = AnyWholeNumber()


class NumberCommand(click.Command):
    """A command whose arguments are numbers: a negative one is out of range, and not an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(NEGATIVE.match(each) for each in args)
        return super().parse_args(ctx, args)


class WholeNumber(click.IntRange):
    """A whole number of at most 64 bits, from `min` to `max`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return _in_range(self, WHOLE.convert(value, param, ctx), value, param, ctx)


class Number(click.FloatRange):
    """A number from `min` to `max`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r:.60} is not a number", param, ctx)
        return _in_range(self, number, value, param, ctx)


def _in_range(
    kind: click.IntRange | click.FloatRange,
    number: T,
    given: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> T:
    low, high = kind.min, kind.max
    if (low is None or number >= low) and (high is None or number <= high):
        if isinstance(number, int) and exceeds_64_bits(number):
            raise click.BadParameter(f"{given!s:.60} does not fit in 64 bits", ctx, param)
        return number
    if low is not None and high is not None:
        allowed = f"give {low:.12g} to {high:.12g}" if isinstance(number, float) else f"give {low} to {high}"
    else:
        allowed = f"give {low} or more" if low is not None else f"give {high} or less"
    raise click.BadParameter(f"{given!s:.60} is out of range; {allowed}", ctx, param)


def exceeds_64_bits(number: int) -> bool:
    from palisade.metastore.command_codec import INT_MAX

    return abs(number) > INT_MAX
