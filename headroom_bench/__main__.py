"""`headroom-bench` and `python -m headroom_bench`: the commands, and how errors are told."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; every error a user can mend is one line and an exit code."""
    try:
        from headroom_bench.cli.app import run_app

        sys.exit(run_app(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(4)


if __name__ == "__main__":
    main()
