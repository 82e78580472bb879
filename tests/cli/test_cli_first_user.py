"""Commands that sign in before the first user of the cluster exists wait for it."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from tests.support.cli_node import CliNode, cli_node
from tests.support.permission_world import Users


def wait_for(node: CliNode, name: str, tries: int) -> None:
    """The node has no user until a command has tried to sign in so often; then `name` is created."""
    left = tries

    async def no_user() -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            await Users(node.services.key_values).make(name, ("admin", ""))
        return True

    authorizer: Any = node.services.authorizer
    authorizer._no_user = no_user


@pytest.mark.parametrize("command", ["put /a b --user=carol", "fencing --at={http} --user=carol", "login --user=carol"])
@pytest.mark.parametrize("tries", [2, 1_000_000])
def test_command_waits_for_the_first_user_until_its_deadline(command: str, tries: int) -> None:
    """It failed at once with "wrong user name or password"."""
    with cli_node(guarded=True, fencing_view=lambda: {"node": "n1", "lease": None, "leader": None}) as node:
        wait_for(node, "carol", tries)
        environment = {"PALISADE_PASSWORD": "carols password", "PALISADE_ENDPOINTS": node.endpoint}
        options = ["--timeout", "5" if tries == 2 else "1"]
        done = CliRunner().invoke(main, [*command.format(http=node.http).split(), *options], env=environment)
    if tries == 2:
        assert done.exit_code == 0, done.output
    else:
        assert done.exit_code == 3, done.output
        assert "the cluster has no user yet" in done.stderr
