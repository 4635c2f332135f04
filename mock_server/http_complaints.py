"""What the HTTP library has to say of requests, each in one line of the server's own log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError


def complaints(note: Callable[[str], None]) -> logging.Logger:
    """A logger that gives each complaint to `note`."""
    logger = logging.Logger("mock_server.http", logging.WARNING)
    logger.addHandler(_OneLine(note))
    return logger


class _OneLine(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        why = record.exc_info[1] if record.exc_info else None
        if isinstance(why, ConnectionError):  # somebody hung up, as people do
            return
        if why is not None:
            text += f": {type(why).__name__}: {' '.join(str(why).split())[:200]}"
        if why is not None and not isinstance(why, HttpProcessingError):
            last = traceback.extract_tb(why.__traceback__)[-1]  # a fault of ours: where it is
            text += f" ({last.filename}:{last.lineno})"
        self._note(text)
