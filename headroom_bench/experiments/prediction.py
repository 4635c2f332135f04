"""The same crowd against the virtual box: alone, or beside a measured run."""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headroom_bench.box import Box
from headroom_bench.crowd.crowd import Crowd
from headroom_bench.errors import UserError
from headroom_bench.experiments.bounds import bound_by_phase, shares_of_bounds, time_spent
from headroom_bench.experiments.deployment import box_of
from headroom_bench.judge.limits import limits_of
from headroom_bench.judge.verdict import Load
from headroom_bench.network import Link, link_named
from headroom_bench.records import RequestRecord
from headroom_bench.report.summary import WorldOutcome
from headroom_bench.results.statistics import steady
from headroom_bench.simulate.asked import Times
from headroom_bench.simulate.ways import Path
from headroom_bench.simulate.world import Lengths, Naming, SimulatedWorld, Worked
from headroom_bench.target import ServerSpec

REACTION_S = 1e-6
"""The shortest way to the box. It goes on with its next pass at once: what somebody asks at the
moment an answer ended is not in that pass, however near they are."""

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


def predict_crowd(
    crowd: Crowd,
    deployment: Deployment,
    naming: Naming,
    *,
    duration_s: float | None = None,
    warmup_s: float = 0.0,
    max_requests: int | None = None,
    max_rps: float | None = None,
    lengths: Mapping[str, Lengths] | None = None,
    one_way_s: float = 0.0,
    server: ServerSpec | None = None,
    persona_links: bool = False,
    keep_times: bool = True,
) -> tuple[WorldOutcome, dict[str, Times]]:
    """Runs the crowd in virtual time.

    With `lengths` (from a measured run, by request id) every prompt and answer has its measured
    length. `server` is what is told of the server's settings (see `box_of`). With `persona_links`
    people's own links act, which they do in simulations only. How busy the box was and what bound
    it is told of the time after `warmup_s`; records are of all. Without `keep_times` what bound it
    is left out.

    Returns the outcome and every request's token times (seconds on the run's clock).
    """
    records: list[RequestRecord] = []
    token_times: dict[str, Times] = {}

    def emit(record: RequestRecord, times: Times) -> None:
        records.append(record)
        if keep_times:
            token_times[record.request_id] = times

    box = box_of(deployment, server)
    links = links_of(crowd) if persona_links else {}
    world = SimulatedWorld(
        box,
        naming,
        emit,
        path=Path(max(REACTION_S, one_way_s)),
        links=links,
        max_requests=max_requests,
        lengths=lengths,
        max_rps=max_rps,
    )
    with _garbage_waits():
        ended_s = world.run(crowd, duration_s, warmup_s)
    load = _load(world.worked(), box)
    on_radio = {name for name, link in links.items() if link.shared}
    if not keep_times:
        return WorldOutcome(records, load, on_radio=on_radio, ended_s=ended_s), token_times
    counted = steady(records, warmup_s, math.inf)
    limits, phases = explain(counted, load, deployment, on_radio)
    return WorldOutcome(records, load, limits, phases, on_radio, ended_s), token_times


@contextmanager
def _garbage_waits() -> Iterator[None]:
    """No collector meanwhile: it would look through ever more records again and again, and next to
    nothing of a simulated life is held by cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _load(worked: Worked, box: Box) -> Load:
    seconds = worked.seconds

    def share(busy_s: float) -> float | None:
        # The last pass may end a little after the last answer.
        return min(1.0, busy_s / seconds) if seconds else None

    return Load(
        busy_share=share(worked.busy_s),
        all_slots_share=share(worked.all_taken_s),
        preempted=worked.preempted,
        killed=worked.killed,
        one_pool=box.design.memory == "paged",
        slots=box.design.parallel,
        radio_busy_shares={n: s / seconds for n, s in worked.radios_s.items() if seconds},
    )


def links_of(crowd: Crowd) -> dict[str, Link]:
    """Each persona's own link, where it names one. Raises UserError for one that cannot be."""
    links = {}
    for name, persona in crowd.personas().items():
        if persona.link is not None:
            try:
                links[name] = link_named(persona.link)
            except UserError as why:
                raise UserError(f"crowd {crowd.name}, {name}: link: {why}") from None
    return links


def explain(
    records: Sequence[RequestRecord],
    load: Load,
    deployment: Deployment | None,
    on_radio: Collection[str] = (),
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What bound a run, with the evidence, and what bounds prefill and decoding there."""
    if deployment is None:
        return limits_of(records, load, None, on_radio), {}
    spent = time_spent(records, deployment.pricer())
    return limits_of(records, load, shares_of_bounds(spent), on_radio), bound_by_phase(spent)


_NEVER_SERVED = frozenset(
    ("connect_failed", "connect_timeout", "not_http", "unauthorized", "not_found", "rate_limited",
     "unavailable", "context_exceeded", "refused")
)  # fmt: skip
"""Failures that cost a server nothing. Whoever gave up, was cut off or got half of an answer kept
it busy until then."""


def measured_lengths(records: Iterable[RequestRecord]) -> dict[str, Lengths]:
    """What each measured request really was, for the prediction beside it."""
    return {record.request_id: _lengths(record) for record in records}


def _lengths(record: RequestRecord) -> Lengths:
    prompt_tokens = record.prompt_tokens
    return Lengths(
        ok=record.ok,
        prompt_tokens=record.sent_tokens if prompt_tokens is None else prompt_tokens,
        completion_tokens=record.completion_tokens,
        reasoning_tokens=record.reasoning_tokens,
        lasted_s=None if record.end_s is None else record.end_s - record.started_at_s,
        served=record.sent_s is not None and record.error_kind not in _NEVER_SERVED,
    )
