"""The limit on open files is raised as far as it may, and told where that is too little."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from headroom_bench.live.sockets import allow_connections
print(allow_connections(count), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs rlimits")
@pytest.mark.parametrize(
    ("soft", "hard", "count", "told"),
    [
        (200, 500, 100, "None 200"),
        (200, 500, 300, "None 364"),
        (200, 500, 436, "None 500"),
        (200, 500, 1000, "436 500"),
        (40, 40, 60, "0 40"),
    ],
)
def test_the_limit(soft: int, hard: int, count: int, told: str) -> None:
    words = [sys.executable, "-c", CODE, str(soft), str(hard), str(count)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told
