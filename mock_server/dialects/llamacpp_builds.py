"""What differs between three recorded builds of llama-server, one for each form of its journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    state_lacks: frozenset[str] = frozenset()
    """What `/v1/models`, `/props` and `/slots` do not tell yet, as `route.key`."""
    webui: tuple[str, ...] = ("ui",)
    """What `/props` calls its own pages."""
    settings_instead: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Generation settings that came later, and those that stood in their place."""

    def without_later(self, route: str, told: dict[str, Any]) -> dict[str, Any]:
        """What this build tells of `told` under `route`."""
        return {k: v for k, v in told.items() if f"{route}.{k}" not in self.state_lacks}

    def settings(self, newest: Mapping[str, Any]) -> dict[str, Any]:
        """Generation settings as this build lists them."""
        told: dict[str, Any] = {}
        for key, value in newest.items():
            told |= self.settings_instead.get(key, {key: value})
        return told


_AFTER_B7551 = frozenset(
    (
        *("model.aliases", "model.tags", "meta.n_ctx", "props.media_marker", "modalities.video"),
        *("props.chat_template_caps", "props.cors_proxy_enabled", "slot.n_prompt_tokens"),
        *("slot.n_prompt_tokens_processed", "slot.n_prompt_tokens_cache"),
    )
)
_AFTER_B9713 = frozenset(
    ("model.architecture", "meta.ftype", "props.model_ftype", "caps.supports_reasoning_effort")
)
_NONE_YET: dict[str, Mapping[str, Any]] = {"adaptive_target": {}, "adaptive_decay": {}}

BUILDS = {
    "J4": Build(
        "b7551-mock",
        "J4",
        False,
        True,
        False,
        500,
        False,
        False,
        "sim_best",
        "",
        state_lacks=_AFTER_B9713 | _AFTER_B7551,
        webui=("webui",),
        settings_instead=_NONE_YET
        | {
            "generation_prompt": {"thinking_forced_open": False},
            "backend_sampling": {},
            "speculative.types": {
                "speculative.n_max": 16,
                "speculative.n_min": 0,
                "speculative.p_min": 0.75,
            },
        },
    ),
    "J6": Build(
        "b9713-mock",
        "J6",
        True,
        True,
        True,
        500,
        False,
        True,
        "sim_best",
        "n_decoded",
        state_lacks=_AFTER_B9713,
        webui=("ui", "webui"),
        settings_instead=_NONE_YET,
    ),
    "J8": Build("b11549-mock", "J8", True, False, True, 400, True, True, "f_sim_best", "n_gen"),
}
"""J4: 2025 to May 2026. J6: May to July 2026. J8: since then."""


def build_of(journal_format: str) -> Build:
    """Raises `UserError` for a form that the mock does not write."""
    if journal_format not in BUILDS:
        raise unknown_name("journal format", journal_format, BUILDS)
    return BUILDS[journal_format]
