"""Every dialect by its name."""

from __future__ import annotations

from collections.abc import Callable

from mock_server.dialect import Dialect
from mock_server.dialects.llamacpp import LlamaCpp
from mock_server.front import Front

DIALECTS: dict[str, Callable[[Front], Dialect]] = {
    "llamacpp": LlamaCpp,
}
