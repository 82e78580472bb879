"""The asyncio client: `async with Client(endpoints=["127.0.0.1:7601"]) as client: await client.put("key", "value")`."""

from palisade.client.client import Client
from palisade.client.watch import Watch
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.wire.credentials import Password, Token

__all__ = ["Client", "OutcomeUnknown", "Password", "Token", "Unavailable", "Watch"]
