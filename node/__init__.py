"""The process: wiring, configuration, start and stop, the embedded store, restore."""

if not __name__.startswith("palisade."):
    raise ImportError(
        f"import palisade.{__name__} instead of {__name__}: a module imported under two names has two of each class, "
        "and an except clause misses the other one's errors"
    )
