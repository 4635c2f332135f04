"""Run a command that cannot outlive whoever started it. A script: `guard.py FD COMMAND...`.

FD is the read end of a pipe; only the starter holds the other end, so its end of file means that
the starter is gone, however it died. A watcher waits for that in the command's process group (which
the starter made) and ends the group. The command itself takes over this process: its pid, exit
status and signals are its own. Stands alone, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn

GRACE_S = 5.0
"""From asking the group to end until it is killed."""


def main(arguments: list[str]) -> NoReturn:
    lifeline, command = int(arguments[0]), arguments[1:]
    server = os.getpid()
    if os.fork() == 0:
        _watch(lifeline, server)
    os.close(lifeline)
    # Python ignores it, and what is ignored stays ignored in the command.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


def _watch(lifeline: int, server: int) -> NoReturn:
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    while os.read(lifeline, 1):
        pass
    # This process is in the group, so the group's number cannot have become somebody else's.
    os.killpg(os.getpgrp(), signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while os.getppid() == server and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
