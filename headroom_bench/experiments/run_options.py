"""What a run was asked to be, and how its manifest tells it so that it can be taken up again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_type_hints

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.script import Prompts
from headroom_bench.crowd.sessions import recorded_texts
from headroom_bench.errors import UserError
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.plain import from_plain, to_plain
from headroom_bench.secret_words import holds_mask, shown_fields
from headroom_bench.target import ServerSpec, Target, load_target


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything a run was asked to be. Durations in life seconds."""

    target: Target
    crowd: Crowd
    out: Path
    duration_s: float | None
    max_requests: int | None = None
    warmup_s: float = 0.0
    journal: str | None = None
    prometheus: tuple[str, int] | None = None
    max_rps: float | None = None
    force_lengths: bool = False
    thinking: bool = False
    """The model may think first, and does; one that always does needs no word."""
    time_scale: float = 1.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    drain_s: float = 120.0
    """How long answers in flight at the end of `duration_s` may still take."""
    prompts_from: str = "distinct"
    """As `--prompts` named it, a file by its whole path."""

    def leaves(self, ended_s: float, requests: int) -> bool:
        """Whether there is anything left to ask after so many life seconds and requests."""
        if self.duration_s is not None and ended_s >= self.duration_s:
            return False
        return self.max_requests is None or requests < self.max_requests


_PLAIN = (
    "duration_s", "max_requests", "warmup_s", "journal", "max_rps", "force_lengths", "thinking",
    "time_scale", "timeouts", "drain_s", "prompts_from",
)  # fmt: skip
"""What stands in a manifest under its own name."""


def as_config(options: RunOptions) -> dict[str, Any]:
    """The manifest's `config`: all that may be written down."""
    crowd = options.crowd
    return {
        "target": options.target.shown(),
        "crowd": {
            "name": crowd.name,
            "counts": crowd.counts(),
            "seed": crowd.seed,
            "groups": to_plain(crowd.groups),
        },
        **{name: to_plain(getattr(options, name)) for name in _PLAIN},
        "prompts": crowd.prompts.kind,
        "prompts_digest": _digest(crowd.prompts),
    }


def _digest(prompts: Prompts) -> str | None:
    """Tells recorded texts from others; they themselves stand in no manifest."""
    if not prompts.sessions:
        return None
    told = "\n".join(sorted(recorded_texts(prompts.sessions)))
    return blake2b(told.encode(), digest_size=12).hexdigest()


def options_of(
    config: Mapping[str, Any],
    folder: Path,
    headers: Mapping[str, str],
    prompts_of: Callable[[str], Prompts],
) -> RunOptions:
    """The options that the manifest in `folder` tells of.

    `headers` are those that are given anew: their values stand in no manifest. `prompts_of` reads
    `prompts_from`, since recorded texts do not stand there either.

    Raises:
        UserError: the manifest lacks something, what it names has changed, or a secret that it
            must not hold is not given.
    """
    where = f"{folder / 'manifest.json'}: config"
    told = from_plain(dict[str, Any], config.get("crowd"), f"{where}.crowd")
    if "groups" not in told or "drain_s" not in config:
        raise UserError(f"{where}: an older version wrote it; it cannot be taken up")
    hints = get_type_hints(RunOptions)
    read: dict[str, Any] = {
        name: from_plain(hints[name], config.get(name), f"{where}.{name}") for name in _PLAIN
    }
    _check(read, where)
    prompts = prompts_of(read["prompts_from"])
    digest = config.get("prompts_digest")
    if digest is not None:
        from_plain(str, digest, f"{where}.prompts_digest")
    if _digest(prompts) != digest:
        raise UserError(f"{read['prompts_from']} holds other sessions than when the run began")
    crowd = from_plain(Crowd, told, f"{where}.crowd").with_prompts(prompts)
    target = _target_of(config.get("target"), headers, f"{where}.target")
    return RunOptions(target=target, crowd=crowd, out=folder.parent, **read)


def _check(read: Mapping[str, Any], where: str) -> None:
    """Refuses numbers that no run can have had: the manifest was damaged, or changed by hand."""
    numbers: dict[str, Any] = {
        **{name: read[name] for name in ("duration_s", "max_requests", "max_rps")},
        **{name: read[name] for name in ("time_scale", "drain_s")},
        **{f"timeouts.{name}": value for name, value in asdict(read["timeouts"]).items()},
    }
    for name, value in {**numbers, "warmup_s": read["warmup_s"] or 1.0}.items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{where}.{name}: {value:g} is not what a run writes there")


def _target_of(told: Any, headers: Mapping[str, str], where: str) -> Target:
    """The target as the manifest shows it; what it must not show comes from its file again, and
    from the command line."""
    shown = from_plain(dict[str, Any], told, where)
    source = from_plain(str, shown.get("source"), f"{where}.source")
    again = load_target(source)
    if again.url != shown.get("url"):
        raise UserError(f"{source} is another target now: {again.url}, not {shown.get('url')}")
    sent = {**again.headers, **headers}
    for name in from_plain(tuple[str, ...], shown.get("headers"), f"{where}.headers"):
        if name not in sent:
            raise UserError(f"the run sent the header {name}; give it again: --header '{name}: …'")
    body = from_plain(dict[str, Any], shown.get("body"), f"{where}.body")
    if body == shown_fields(again.body):
        body = again.body
    elif holds_mask(body):
        raise UserError(
            "the run sent a secret in its body (--extra-body), which stands in no manifest: "
            "start a new run, with the field in the [body] of a target file"
        )
    fields: dict[str, Any] = {
        name: shown.get(name)
        for name in ("dialect", "model", "api_key_env", "ca_file", "insecure", "proxy")
    }
    return replace(
        again,
        headers=sent,
        body=body,
        server=from_plain(ServerSpec, shown.get("server"), f"{where}.server"),
        **fields,
    )
