"""Before a run: what the server tells of itself, and how texts for it are to be written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from headroom_bench.errors import TargetError
from headroom_bench.experiments.beside import why_not
from headroom_bench.experiments.measuring import Writing, transport_to
from headroom_bench.experiments.prompt_report import context_needs, forces_lengths
from headroom_bench.experiments.run_state import RunState, deployment_for, manifest
from headroom_bench.experiments.thinking import with_thinking_of
from headroom_bench.experiments.told_otherwise import told_otherwise
from headroom_bench.live.access import Access
from headroom_bench.live.clock import monotonic_ns
from headroom_bench.live.counting import UsageCounter
from headroom_bench.live.dialect import can_force_length
from headroom_bench.live.probe import Control, in_doubt, probe, too_small
from headroom_bench.live.sockets import allow_connections
from headroom_bench.live.tokenizer import tokenizer_of
from headroom_bench.live.vocabulary import counted_by, template_of, vocabulary_of


def model_asked(state: RunState) -> str:
    """The `model` of every request's body."""
    assert state.facts is not None
    return state.options.target.model or state.facts.model or "default"


async def get_to_know(state: RunState, access: Access) -> Writing:
    """Probes the target, warns of what will go wrong; returns what to write prompts with."""
    options = state.options
    control = Control(access)
    try:
        target = options.target
        state.facts = facts = await probe(
            control, target.dialect, lambda: monotonic_ns() / 1e6, target.model
        )
        model = options.target.model or facts.model
        writing = await _get_to_write(state, access, control, model)
    finally:
        await control.close()
    state.vocabulary = writing.vocabulary
    if not options.target.embedded_mock:  # which answers at once
        named = options.target.server.model or model
        thinking = with_thinking_of(options.crowd, named, options.thinking)
        state.options = options = replace(options, crowd=thinking)
    state.earlier.check_model(facts.model)
    for note in (*facts.notes, *told_otherwise(target, facts)):
        state.warn(note)
    for warning in too_small(facts, context_needs(options.crowd)):
        state.warn(warning)
    forced = options.force_lengths or forces_lengths(options.crowd)
    if forced and not can_force_length(facts.dialect):
        state.warn(
            f"the {facts.dialect} dialect has no way to make a server write a given number of "
            "tokens: answers may be shorter than asked"
        )
    at_once = sum(1 + len(user.persona.extras) for user in options.crowd.users())
    fewer = allow_connections(at_once)
    if fewer is not None:
        state.warn(
            f"{at_once} requests may be in flight at once, and this machine lets a program have "
            f"{fewer or 'hardly any'} connections (ulimit -n): the others will fail"
        )
    if why := _no_prediction(state):
        state.say(f"no prediction beside it{why}")
    state.folder.write_manifest(manifest(state, "running"))
    return writing


async def _get_to_write(
    state: RunState, access: Access, control: Control, model: str | None
) -> Writing:
    """Lengths by the server's own tokenizer, else by what it counts, else by guess."""
    options, facts = state.options, state.facts
    assert facts is not None
    kinds = options.crowd.kinds()
    try:
        tokenizer = await tokenizer_of(control, facts.dialect, model)
        exact = tokenizer and Writing(
            await vocabulary_of(tokenizer, kinds), await template_of(tokenizer)
        )
    except TargetError as why:
        state.warn(f"the server's tokenizer broke off, and is not used: {why}")
        exact = None
    if exact is None and options.crowd.prompts.filler and options.max_rps is None:
        state.say(
            "the server has no tokenizer to ask: a few short requests tell how long texts are"
        )
        async with _counter(state, access) as counter:
            return Writing(*await counted_by(counter, kinds, state.folder.run_id))
    if in_doubt(facts, options.target.model):
        async with _counter(state, access) as counter:
            await counter.chat_tokens([("user", "time")])
    return exact or Writing(await vocabulary_of(None, kinds), await template_of(None))


@asynccontextmanager
async def _counter(state: RunState, access: Access) -> AsyncIterator[UsageCounter]:
    """Requests before the run, over connections of their own."""
    assert state.facts is not None
    transport = transport_to(access)
    try:
        yield UsageCounter(
            transport,
            access.headers,
            model_asked(state),
            state.facts.dialect,
            state.options.target.body,
        )
    finally:
        await transport.aclose()


def _no_prediction(state: RunState) -> str | None:
    """Why there will be none, as far as that can be told before the run."""
    try:
        deployment_for(state)
    except Exception as why:  # noqa: BLE001 - a prediction never costs a measurement
        return why_not(why)
    return None
