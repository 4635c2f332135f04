"""What differs between three recorded builds of llama-server, one for each form of its journal."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.errors import unknown_name


@dataclass(frozen=True, slots=True)
class Build:
    """One build. Journal forms are numbered as in the project's notes on them (docs/mock.md)."""

    info: str
    journal: str
    prefix_shown: bool
    """Lines start with the time since the process began, and a level."""
    rate_over_all: bool
    """Rates divide by n tokens; since b10230 by n - 1, for the first one comes with the prompt."""
    headers_early: bool
    """Headers go out when the request is taken (b9592 and later), not with the first token."""
    bad_json_status: int
    pings: bool
    tells_cached: bool
    """Usage says how many prompt tokens were cached (b8672 and later)."""
    similarity_name: str
    generated_name: str


BUILDS = {
    "J4": Build("b7551-mock", "J4", False, True, False, 500, False, False, "sim_best", ""),
    "J6": Build("b9713-mock", "J6", True, True, True, 500, False, True, "sim_best", "n_decoded"),
    "J8": Build("b11549-mock", "J8", True, False, True, 400, True, True, "f_sim_best", "n_gen"),
}
"""J4: 2025 to May 2026. J6: May to July 2026. J8: since then."""


def build_of(journal_format: str) -> Build:
    """Raises `UserError` for a form that the mock does not write."""
    if journal_format not in BUILDS:
        raise unknown_name("journal format", journal_format, BUILDS)
    return BUILDS[journal_format]
