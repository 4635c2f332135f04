"""A persona's file in sentences: what a person sends, waits for, and calls a good answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headroom_bench.units import spelled

Facts = Mapping[str, Any]

_METRICS = {
    "ttft": "the first token",
    "ttfv": "the first thing that the device shows or says",
    "e2e": "the whole answer",
}
_SHARED = {
    "group": "the same for all of the group",
    "user": "the same for one person always",
    "nobody": "new",
}
_EACH = {
    "conversation": "at the start of a conversation",
    "turn": "with every ask",
    "round": "after every tool call",
}


def persona_words(facts: Facts) -> Iterator[str]:
    """One line a topic. `facts` are those of the TOML file."""
    summary = f": {facts['summary']}" if facts.get("summary") else ""
    yield f"{facts.get('name', facts['id'])}{summary}."
    yield _loop(facts)
    yield "The prompt:"
    for plan in facts["segments"]:
        yield f"  {_segment(plan)}"
    yield _answer(facts)
    for extra in facts.get("extras", ()):
        yield (
            f"A {extra['name']} rides along with a conversation's first ask: "
            f"{_amount(extra['tokens'])} tokens, {_amount(extra['output'])} back."
        )
    yield _device(facts.get("device", {}))
    yield _target(facts.get("target"))
    yield _place(facts)


def _loop(facts: Facts) -> str:
    turns = _amount(facts.get("turns", 1))
    told = f"Takes {turns} turn{'' if turns == '1' else 's'} in a conversation"
    rounds = facts.get("rounds", 1)
    if rounds not in (1, {"fixed": 1}):
        wait = facts.get("tool_wait_s", 0)
        told += f", {_amount(rounds)} requests in a turn, all but the last calling a tool"
        told += f" (it takes {_amount(wait)} s)" if wait else ""
    speed = facts.get("read_tok_s")
    told += f"; reads {speed:g} tokens a second" if speed else "; reads at once, as a machine does"
    told += f", then thinks for {_amount(facts.get('think_s', 0))} s"
    patience_s = facts.get("patience_s")
    return told + (f"; gives up after {patience_s:g} s of silence." if patience_s else ".")


def _segment(plan: Facts) -> str:
    each = plan["each"]
    role = plan.get("role", "tool" if each == "round" else "user")
    shared = _SHARED[plan.get("shared", "nobody")]
    what = f"{plan['name']} ({role}, {plan.get('kind', 'prose')})"
    return f"{what}: {_amount(plan['tokens'])} tokens, {_EACH[each]}, {shared}"


def _answer(facts: Facts) -> str:
    told = f"Answers have {_amount(facts['output'])} tokens"
    if facts.get("rounds", 1) not in (1, {"fixed": 1}):
        told += f", those that call a tool {_amount(facts.get('tool_output', 30))}"
    if facts.get("reasoning") in (0, {"fixed": 0}):
        return f"{told}, with no hidden reasoning before them."
    if facts.get("reasoning"):
        return f"{told}, after {_amount(facts['reasoning'])} of hidden reasoning."
    kind = {"trivial": "easy", "knowledge": "plain", "logic": "hard"}
    asked = kind[facts.get("difficulty", "knowledge")]
    return f"{told}; a model that reasons thinks first, as long as {asked} questions take it."


def _device(device: Facts) -> str:
    reasoning = device.get("shows_reasoning", True)
    told = "The device shows reasoning as it comes" if reasoning else "The device hides reasoning"
    if device.get("whole"):
        told += " and shows whole answers only"
    elif device.get("buffer_tokens", 1) > 1:
        told += f" and begins when it has {device['buffer_tokens']} tokens"
    for key, when in (("before_s", "before the request goes out"), ("after_s", "after the tokens")):
        if device.get(key):
            told += f"; {device[key]:g} s pass {when}"
    return f"{told}."


def _target(target: Facts | None) -> str:
    if not target:
        return "No target: no verdict."
    told = f"A good answer: {_METRICS[target['metric']]} within {target['limit_s']:g} s"
    if target.get("min_tok_s"):
        told += f", at {target['min_tok_s']:g} tokens a second or more"
    return f"{told}, in {100 * target.get('share', 0.95):g}% of turns."


def _place(facts: Facts) -> str:
    group = facts.get("group")
    told = f"Shares its group's texts with {group}." if group else ""
    link = f"Connected by {facts['link']} in simulations." if facts.get("link") else ""
    return " ".join(part for part in (told, link) if part)


def _amount(value: Any) -> str:
    """A distribution in words."""
    if not isinstance(value, Mapping):
        return spelled(value)
    match value:
        case {"fixed": number}:
            return spelled(number)
        case {"uniform": [low, high]}:
            return f"{spelled(low)} to {spelled(high)}"
    most = f", {spelled(value['max'])} at most" if "max" in value else ""
    return f"{spelled(value['p50'])} (p50) to {spelled(value['p90'])} (p90{most})"
