"""Sources of a node's options: the command line overrides the environment (PALISADE_*), which overrides the --config
file, which overrides defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from palisade.base.errors import ConfigError
from palisade.base.input_file import ending_input
from palisade.base.network_reason import reason_of
from palisade.node.config import NodeConfig
from palisade.node.options import OLD_NAMES, OPTIONS, GivenValue, node_config, variable_of


def load_node_config(
    command_line: Mapping[str, str], config_file: Path | None = None, environ: Mapping[str, str] | None = None
) -> NodeConfig:
    """`command_line` maps names of options to the texts on the command line. Raises ConfigError."""
    given = dict(from_file(config_file)) if config_file else {}
    given.update(from_environment(os.environ if environ is None else environ))
    given.update({name: GivenValue(text, f"--{name}") for name, text in command_line.items()})
    return node_config(given)


def from_environment(environ: Mapping[str, str]) -> dict[str, GivenValue]:
    """Other variables (PALISADE_ENDPOINTS and the like) are ignored."""
    known = {variable_of(old): name for old, name in OLD_NAMES.items()}
    known |= {option.variable: option.name for option in OPTIONS}
    return {name: GivenValue(environ[variable], variable) for variable, name in known.items() if environ.get(variable)}


def from_file(path: Path) -> dict[str, GivenValue]:
    """The options in a TOML file, whose names may be written with '-' or '_'. Raises ConfigError."""
    try:
        content = tomllib.loads(ending_input(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {reason_of(error)}; check the path and its permissions", option="config"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not TOML: it is not UTF-8", option="config") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", option="config") from None
    found = {name.replace("_", "-"): GivenValue(value, f"{path}") for name, value in content.items()}
    return {OLD_NAMES.get(name, name): given for name, given in found.items()}
