"""Commands that sign in before the first user of the cluster exists wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from tests.support.cli_node import CliNode, cli_node
from tests.support.permission_world import Users


@contextmanager
def node_without_users(name: str, tries: int) -> Iterator[CliNode]:
    """Until a command has tried to sign in so often; then `name` is created."""
    left = tries

    async def no_user() -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            await Users(node.services.key_values).make(name, ("admin", ""))
        return True

    view = {"node": "n1", "lease": None, "leader": None}
    with cli_node(guarded=True, no_user=no_user, fencing_view=lambda: view) as node:
        yield node


@pytest.mark.parametrize("command", ["put /a b --user=carol", "fencing --at={http} --user=carol", "login --user=carol"])
@pytest.mark.parametrize("tries", [2, 1_000_000])
def test_command_waits_for_the_first_user_until_its_deadline(command: str, tries: int) -> None:
    """It failed at once with "wrong user name or password"."""
    with node_without_users("carol", tries) as node:
        environment = {"PALISADE_PASSWORD": "carols password", "PALISADE_ENDPOINTS": node.endpoint}
        options = ["--timeout", "5" if tries == 2 else "1"]
        done = CliRunner().invoke(main, [*command.format(http=node.http).split(), *options], env=environment)
    if tries == 2:
        assert done.exit_code == 0, done.output
    else:
        assert done.exit_code == 3, done.output
        assert "the cluster has no user yet" in done.stderr
