"""`headroom-bench` and `python -m headroom_bench`: the commands, and how errors are told."""

from __future__ import annotations

import os
import signal
import sys

from headroom_bench.errors import EXIT_INTERRUPTED, EXIT_WRONG_INPUT


def main() -> None:
    """Runs the command line; every error a user can mend is one line and an exit code."""
    from headroom_bench.cli.output import Output, forget_useless_width, open_closed_streams

    open_closed_streams()
    signal.signal(signal.SIGINT, _end_at_once)
    from headroom_bench.cli.app import run_app

    forget_useless_width()
    output = Output()
    output.install()
    code = run_app(sys.argv[1:])
    problem = output.problem()
    if problem is not None:
        sys.stderr.write(f"headroom-bench: {problem}\n")
        sys.stderr.flush()
        code = code or EXIT_WRONG_INPUT
    # The interpreter gives signals their defaults back while it ends: a late Ctrl-C would turn an
    # exit code into a death by signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _end_at_once(number: int, frame: object) -> None:  # noqa: ARG001
    """Ctrl-C before anything needs saving; a command that has something to save says so itself.

    No exception: thrown into an import it would come out as something else.
    """
    os.write(2, b"headroom-bench: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
