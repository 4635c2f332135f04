"""How long each phase of a request may take. Wall time, seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Generous where small boxes are slow: a CPU reads 30,000 tokens in twenty minutes, and
    llama.cpp sends no headers before it has read them."""

    connect_s: float = 10.0
    """Name look-up, TCP and TLS together."""
    headers_s: float | None = None
    """From sending to the headers; None: as long as the first token."""
    first_token_s: float = 1800.0
    """From sending to the first token, whatever else has come (headers, comments, a role)."""
    silence_s: float = 300.0
    """Between two events once tokens come; keep-alive comments are none."""
    request_s: float = 7200.0
    """From sending to the end."""

    @property
    def until_headers_s(self) -> float:
        return self.first_token_s if self.headers_s is None else self.headers_s
