"""`file:` URLs of absolute paths. Pure."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit


class BadFileUrl(ValueError):
    """It names no absolute path of this machine."""


def path_of_url(url: str) -> str:
    """Raises BadFileUrl."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadFileUrl(f"{url[:100]!r} is not a URL: {error}") from None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadFileUrl(f"{url[:100]!r} is not file:// and an absolute path")
    if not path.startswith("/") or "\0" in path:
        raise BadFileUrl(f"{url[:100]!r} has no absolute path")
    return path


def url_of_path(path: str) -> str:
    """The inverse, in ASCII. Raises BadFileUrl."""
    if not path.startswith("/"):
        raise BadFileUrl(f"{path[:100]!r} is not an absolute path")
    return f"file://{quote(path)}"
