"""palisade del."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from palisade.cli.kv import end_of_range, refuse_empty
from palisade.cli.options import client_options, read_bytes
from palisade.cli.printing import readable
from palisade.cli.session import CliSession, failure_of
from palisade.wire import json_results as shapes

if TYPE_CHECKING:
    from palisade.metastore.results import DeleteRangeResult

CONTINUE = "the same command deletes the rest"


@click.command("del")
@click.argument("key", type=read_bytes)
@click.argument("end", type=read_bytes, default="")
@click.option("--prefix", is_flag=True, help="All keys that begin with KEY.")
@click.option("--from-key", is_flag=True, help="All keys from KEY on.")
@click.option("--prev-kv", is_flag=True, help="Print the deleted keys and values.")
@client_options
def delete(session: CliSession, key: bytes, end: bytes, prefix: bool, from_key: bool, prev_kv: bool) -> None:
    """Delete KEY, or a range of keys.

    A range is from KEY up to END, END excluded; all keys that begin with KEY (--prefix); or all keys from KEY on
    (--from-key).

    Up to 10,000 keys are deleted in one revision. More are deleted in portions of 10,000, each in a revision of its
    own, so that the cluster answers other requests meanwhile. If the command fails or is interrupted, the portions that
    were deleted stay deleted; the same command deletes the rest. If the user may not read the range, all keys are
    deleted in one request.
    """
    refuse_empty(session, key, prefix)
    range_end = end_of_range(end, prefix, from_key)
    deleted, total, unsure = 0, 0, False
    of_many = bool(range_end or prefix)

    def count(done: int, of_all: int) -> None:
        nonlocal deleted, total
        deleted, total = done, of_all

    def why() -> str | None:
        return f"{deleted:,} of {total:,} keys are deleted" if deleted else None

    def remark() -> str | None:
        """After Ctrl-C."""
        if deleted:
            return f"at least {deleted:,} of {total:,} keys were deleted; {CONTINUE}"
        return f"some keys may have been deleted, or may still be deleted; {CONTINUE}" if unsure and of_many else None

    async def run(client: Any) -> DeleteRangeResult:
        from palisade.client.bulk_deletes import delete_in_portions

        nonlocal unsure
        try:
            return await delete_in_portions(client, key, range_end, prefix=prefix, prev_kv=prev_kv, progress=count)
        except (asyncio.CancelledError, KeyboardInterrupt):
            unsure = client.has_uncertain_write
            raise
        except Exception as error:
            failure = failure_of(error, session.endpoints, session.source)
            if failure is None or not deleted:
                raise
            session.fail(replace(failure, message=f"{failure.message}; {why()}: {CONTINUE}"))

    with session.note_after_ctrl_c(remark):
        result = session.call(run, why=why, warns_of_writes=not of_many)
    lines = [f"deleted {result.deleted}, revision {result.revision}"]
    lines += [f"{readable(kv.key)}\t{readable(kv.value)}" for kv in result.prev_kvs]
    session.answer(shapes.delete_shape(result), "\n".join(lines))
