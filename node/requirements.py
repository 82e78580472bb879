"""What a configuration needs beyond itself: files that it names, packages, open files.

`palisade node` checks it before anything is written, and `palisade up` before it formats a folder, so a refused start
leaves nothing behind. Other parts that read the same file later raise the same error, because it may change meanwhile.
"""

from __future__ import annotations

import importlib.util

from palisade.base.errors import ConfigError
from palisade.base.file_limit import raise_file_limit
from palisade.node.config import NodeConfig
from palisade.service.authorization.bootstrap import password_in


def check_requirements(config: NodeConfig) -> None:
    """Raises ConfigError. Raises the limit of open files of this process, as every node does."""
    raise_file_limit()
    if config.root_password_file is not None:
        password_in(config.root_password_file)
    if config.segments:
        need_pyarrow()
    if config.otel_endpoint is not None:
        need_opentelemetry()


def need_pyarrow() -> None:
    if not is_installed("pyarrow"):
        raise ConfigError(
            "pyarrow is not installed, which reads Parquet files; run pip install '.[segments]' in a clone "
            "of Palisade, or omit --segments",
            option="segments",
        )


def need_opentelemetry() -> None:
    if not (is_installed("opentelemetry.sdk") and is_installed("opentelemetry.exporter.otlp.proto.http")):
        raise ConfigError(
            "OpenTelemetry is not installed; run pip install '.[otel]' in a clone of Palisade, or omit --otel-endpoint",
            option="otel-endpoint",
        )


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False
