"""How many connections this process may hold open."""

from __future__ import annotations

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

OTHER_FILES = 64
"""Files and sockets that a run needs besides its connections."""


def allow_connections(count: int) -> int | None:
    """Raises this process's own limit on open files as far as it may; what is left for connections
    where that is fewer than `count`, else None."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    unbounded = resource.RLIM_INFINITY
    if soft == unbounded or soft >= wanted:
        return None
    most = wanted if hard == unbounded else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS allows less than it says
        most = soft
    return None if most >= wanted else max(0, most - OTHER_FILES)
