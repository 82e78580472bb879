"""What holds for every test: processes that it starts hear Ctrl-C, however the tests themselves were started.

A shell hands what it starts in the background an ignored SIGINT, and whoever is started by that inherits it.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.support.served_node"]
"""Fixtures of a node over a group of one in memory: `services`, `server`, `http`, `stream`, `client`."""
