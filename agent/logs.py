"""Log as JSON lines on standard error, whoever of ours logs and by which of the two libraries."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Make an import of the module fail while the block runs."""
    modules: dict[str, Any] = sys.modules
    before = modules.setdefault(module, None)
    try:
        yield
    finally:
        if before is None:
            del modules[module]


# For a console that is never shown here, structlog imports rich where it finds it: 4 MiB of an agent's 80.
with _without("rich"):
    import structlog


def configure(level: str) -> None:
    """Set the level and the form of every logger of this process."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=number, handlers=[handler], force=True)
