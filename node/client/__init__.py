"""The asyncio client: `async with Client(endpoints=["127.0.0.1:7601"]) as client: await client.put("key", "value")`."""

from node.authorization.credentials import Password, Token
from node.client.client import Client
from node.client.watch import Watch
from raftgroup.errors import OutcomeUnknown, Unavailable

__all__ = ["Client", "OutcomeUnknown", "Password", "Token", "Unavailable", "Watch"]
