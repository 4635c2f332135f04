"""Redlines of simulated boxes: what they must show, whatever the figures are."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from headroom_bench.crowd.crowd import Crowd, Group, crowd_of, load_crowd
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.persona import Persona, load_persona
from headroom_bench.errors import UserError
from headroom_bench.experiments.deployment import deployment_of
from headroom_bench.experiments.prediction import predict_crowd
from headroom_bench.experiments.redline import (
    Probed,
    RedlineOptions,
    redline,
    search,
    simulated_probe,
)
from headroom_bench.experiments.redline_trials import Trial, merged_limits
from headroom_bench.experiments.thinking import with_thinking
from headroom_bench.judge.redline import Effort
from headroom_bench.judge.verdict import LEAST_TURNS, Load, judge
from headroom_bench.records import RequestRecord
from headroom_bench.report.redline_page import print_redline
from headroom_bench.results.statistics import spread
from headroom_bench.simulate.world import Naming
from headroom_bench.target import ServerSpec, Target


def target(**server: Any) -> Target:
    plain = {"hardware": "rtx-4090", "model": "Llama 3.1 8B", "quant": "Q4_K_M", "slots": 8}
    return Target(
        "box", "http://127.0.0.1:1", server=ServerSpec(**{**plain, "ctx": 131_072} | server)
    )


def alone(persona: Persona, count: int = 1) -> Crowd:
    return Crowd(persona.name, 1, (Group(persona, count),))


def found(where: Target, crowd: Crowd, **changes: Any) -> dict[str, Any]:
    options = RedlineOptions(where, crowd, **{"duration_s": 900.0, "most": 256, **changes})
    return redline(options, lambda trial, word: None)


def people(document: dict[str, Any]) -> int:
    return document["redline"]["passes"] or 0


# --- what the documents say ---------------------------------------------------------------------


@pytest.mark.parametrize("mission", ["voice-command", "voice-question"])
def test_voice_prefers_a_small_direct_model_to_a_larger_one_that_reasons(mission: str) -> None:
    voice = alone(replace(load_persona(mission), think_s=Distribution.fixed(10)))
    small, large = (
        target(model="Qwen3 4B Instruct 2507"),
        target(model="gpt-oss 20B", quant="MXFP4"),
    )
    brief = {"most": 24, "repeats": 1, "duration_s": 300.0, "warmup_s": 60.0}
    direct, reasoning = found(small, voice, **brief), found(large, voice, **brief)
    assert people(direct) > people(reasoning)
    assert reasoning["reasons"]
    assert not direct["reasons"]
    assert "hidden reasoning" in reasoning["broke"]["evidence"]
    # It is the reasoning, not the size: the same model made direct serves more.
    mute = replace(voice.groups[0].persona, reasoning=Distribution.fixed(1))
    assert people(found(large, alone(mute), **brief)) > people(reasoning)


def test_a_whole_answer_device_waits_for_reasoning_that_a_chat_window_shows() -> None:
    deployment = deployment_of(target(model="gpt-oss 20B", quant="MXFP4"))
    chat = load_persona("chat-reader")
    page = replace(chat, device=replace(chat.device, whole=True, shows_reasoning=False))
    silent = replace(chat, device=replace(chat.device, shows_reasoning=False))

    def first_shown_s(persona: Persona) -> float:
        crowd = with_thinking(alone(persona), deployment.model)
        outcome, _ = predict_crowd(crowd, deployment, Naming("r", "t"), duration_s=1800)
        assert all((record.reasoning_tokens or 0) > 0 for record in outcome.records)
        mean = spread(record.ttfv_s for record in outcome.records)["mean"]
        assert mean is not None
        return mean

    shown, hidden, whole = map(first_shown_s, (chat, silent, page))
    assert shown < hidden < whole


def test_the_redline_falls_as_the_context_grows() -> None:
    where = target(slots=4, ctx=4 * 24_000)
    office = replace(load_persona("office-chat"), think_s=Distribution.fixed(20))

    def with_document(tokens: int) -> dict[str, Any]:
        segments = tuple(
            replace(plan, tokens=Distribution.fixed(tokens)) if plan.name == "document" else plan
            for plan in office.segments
        )
        crowd = alone(replace(office, segments=segments))
        return found(where, crowd, repeats=1)

    documents = [with_document(tokens) for tokens in (500, 4_000, 12_000)]
    redlines = list(map(people, documents))
    assert redlines[0] > redlines[1] > redlines[2] > 0
    assert "waited longest for their prompt to be read" in documents[2]["broke"]["evidence"]


def test_people_who_give_up_show() -> None:
    hasty = replace(
        load_persona("chat-reader"), patience_s=1.5, think_s=Distribution.fixed(1),
        read_tok_s=None,
    )  # fmt: skip
    document = found(target(slots=2), alone(hasty))
    broke = document["broke"]
    assert broke["limit"] == "patience"
    assert "given up on" in broke["evidence"]
    assert {"slots", "patience"} <= {row["limit"] for row in document["limits"]}


def test_who_waits_in_the_queue_waits_for_slots() -> None:
    patient = replace(
        load_persona("chat-reader"), patience_s=None, think_s=Distribution.fixed(5),
    )  # fmt: skip
    broke = found(target(slots=1), alone(patient))["broke"]
    assert broke["limit"] == "slots"
    assert broke["causes"][0]["share"] > 0.5


# --- the search ---------------------------------------------------------------------------------


def test_both_ends_carry_the_verdicts_that_make_them_ends() -> None:
    document = found(target(slots=1), load_crowd("household"), most=64)
    passes, fails = document["redline"]["passes"], document["redline"]["fails"]
    curve = {point["people"]: point for point in document["curve"]}
    assert fails == passes + 1
    assert curve[passes]["verdict"] in ("tight", "right-sized", "overkill", "not enough data")
    assert curve[passes]["trials"] >= 2
    assert curve[fails]["trials"] >= 2
    lost = curve[fails]["by_persona"][document["broke"]["persona"]]
    assert lost["target_met_share"] < 0.95
    assert sum(document["mix"].values()) == passes
    assert document["limits"] or document["broke"]["causes"]


def test_the_same_seed_is_the_same_redline() -> None:
    crowd = crowd_of(["chat-reader:1"], 4)
    once, again = (found(target(slots=2), crowd) for _ in range(2))
    for document in (once, again):
        del document["took_s"]
    assert once == again


def test_a_mixed_crowd_keeps_its_proportions() -> None:
    seen: list[dict[str, int]] = []
    options = RedlineOptions(target(), crowd_of(["chat-reader:3", "voice-command:1"], 1), most=40)
    lived = simulated_probe(replace(options, duration_s=1.0), deployment_of(options.target))

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        seen.append(crowd.counts())
        return lived(crowd, duration_s)

    search(options, options.crowd, probe, None, lambda trial, word: None)
    assert {"chat-reader": 30, "voice-command": 10} in seen
    assert all(abs(c["chat-reader"] - 3 * c["voice-command"]) <= 2 for c in seen)


def records_that(met: float) -> list[RequestRecord]:
    """200 answers, `met` of them in time."""
    return [
        RequestRecord(
            run_id="r", world="measured", request_id=f"chat-reader-{n}/c0/t0/r0",
            conversation_id=f"chat-reader-{n}/c0", persona="chat-reader", user=n, turn=0, round=0,
            target="t", model=None, started_at_s=500.0, sent_s=500.0, ttft_s=0.5, e2e_s=9.0,
            ttfv_s=0.5 if n < 200 * met else 5.0, ok=True, turn_rounds=1,
        )
        for n in range(200)
    ]  # fmt: skip


def test_a_live_probe_is_the_same_search() -> None:
    """Whatever hands records over is searched alike; an unknown load applies no rule of load."""
    options = RedlineOptions(target(), crowd_of(["chat-reader:1"], 1), repeats=1)
    trials: list[Trial] = []

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        return Probed(records_that(0.99 if len(crowd.users()) <= 37 else 0.9), Load(), 1800.0)

    document = search(options, options.crowd, probe, None, lambda t, word: trials.append(t))
    assert document["redline"] == {"passes": 37, "fails": 38, "unjudged": []}
    assert document["verdict"] == "right-sized"
    assert document["broke"]["target_met_share"] == pytest.approx(0.9)
    assert len(trials) == document["probes"]


def test_a_wide_bracket_says_so_and_more_seeds_narrow_it() -> None:
    """A search that is to cost little stops early, and tells how it would look closer."""
    options = RedlineOptions(
        target(), crowd_of(["chat-reader:1"], 1), most=64, effort=Effort(least=2000, small=64)
    )

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        return Probed(records_that(0.99 if len(crowd.users()) <= 37 else 0.9), Load(), duration_s)

    def ends(repeats: int) -> tuple[dict[str, Any], list[str]]:
        asked = replace(options, repeats=repeats)
        document = search(asked, options.crowd, probe, None, lambda trial, word: None)
        return document["redline"], document["warnings"]

    wide, told = ends(2)
    assert wide == {"passes": 32, "fails": 48, "unjudged": []}
    assert told == ["between 32 and 48 people nobody looked closely: --repeats 4 looks closer"]
    assert ends(4) == ({"passes": 37, "fails": 38, "unjudged": []}, [])


def test_an_end_in_doubt_says_so() -> None:
    """Sixty turns with three misses are at the target itself: chance decides."""
    options = RedlineOptions(
        target(), crowd_of(["chat-reader:1"], 1), most=1, repeats=1, most_repeats=1
    )

    def said(turns: int, met: float) -> dict[str, Any]:
        probed = Probed(records_that(met)[-turns:], Load(), 1800.0)
        return search(options, options.crowd, lambda *_: probed, None, lambda trial, word: None)

    doubted, sure = said(60, 0.985), said(60, 0.7)
    assert doubted["redline"]["passes"] == 1
    assert 0.25 <= doubted["curve"][0]["doubt"] <= 0.75
    assert doubted["warnings"][0].startswith("what is said of 1 person may change with more turns")
    assert doubted["warnings"][0].endswith("--repeats 2 looks closer")
    assert sure["redline"]["fails"] == 1
    assert sure["curve"][0]["doubt"] < 0.01
    assert sure["warnings"] == []


def test_a_probe_is_judged_as_a_simulation_is() -> None:
    """The verdict of one probe is `judge`'s on the same records."""
    options = RedlineOptions(target(slots=2), crowd_of(["chat-reader:9"], 1), warmup_s=0.0)
    probed = simulated_probe(options, deployment_of(options.target))(options.crowd, 1800.0)
    words = []
    search(
        replace(options, most=9, repeats=1), options.crowd, lambda crowd, _: probed, None,
        lambda trial, word: words.append((word, trial)),
    )  # fmt: skip
    word, trial = words[0]
    personas = {name: one.target for name, one in options.crowd.personas().items()}
    assert judge(trial.turns, personas, probed.load)[0] == word


def test_what_the_warm_up_brought_is_not_judged() -> None:
    options = RedlineOptions(target(), crowd_of(["chat-reader:1"], 1), most=1)

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        early = [replace(late, started_at_s=299.0) for late in records_that(0.0)]
        return Probed([*early, *records_that(1.0)], Load(), duration_s)

    document = search(options, options.crowd, probe, None, lambda trial, word: None)
    assert document["redline"] == {"passes": 1, "fails": None, "unjudged": []}
    assert document["curve"][0]["requests"] == 2 * 200


def test_what_does_not_fit_serves_nobody() -> None:
    document = found(target(model="Llama 3.1 405B"), load_crowd("household"))
    assert document["redline"] == {"passes": None, "fails": 5, "unjudged": []}
    assert document["broke"]["limit"] == "memory"
    assert "GB are usable" in document["broke"]["evidence"]


def test_a_crowd_without_targets_has_no_redline() -> None:
    crowd = alone(replace(load_persona("chat-reader"), target=None))
    with pytest.raises(UserError, match="nobody in it has a"):
        found(target(), crowd)


def test_too_few_people_allowed() -> None:
    with pytest.raises(UserError, match="--most 4 cannot hold one of each of 5 groups"):
        found(target(), load_crowd("household"), most=4)


# --- nobody passes unseen -----------------------------------------------------------------------


def seldom(gap_s: float) -> Crowd:
    """One who asks now and then, beside one who asks all the time."""
    chat = load_persona("chat-reader")
    rare = replace(chat, name="rare", turns=Distribution.fixed(1), read_tok_s=None,
                   think_s=Distribution.fixed(gap_s))  # fmt: skip
    return Crowd("both", 1, (Group(chat, 1), Group(rare, 1)))


def test_a_size_passes_once_everybody_in_it_was_judged() -> None:
    """Who asks every ten minutes needs hours for a verdict: probes grow until it is one."""
    document = found(target(), seldom(600.0), most=2)
    (point,) = document["curve"]
    assert document["redline"] == {"passes": 2, "fails": None, "unjudged": []}
    assert document["verdict"] not in ("not enough data", "failing")
    assert all(group["turns"] >= LEAST_TURNS for group in point["by_persona"].values())
    assert not any("not judged" in told for told in document["warnings"])
    assert point["trials"] > 2, "two seeds have some three turns of it"


def test_who_cannot_be_judged_passes_nowhere() -> None:
    """Three turns in all of a day are no verdict, and no pass."""
    document = found(target(), seldom(600.0), most=2, lengthen=False)
    assert document["redline"] == {"passes": None, "fails": None, "unjudged": [2]}
    assert document["verdict"] == "not enough data"
    assert document["mix"] is None
    assert any("rare: under 20 turns with 2 people" in told for told in document["warnings"])
    shown = io.StringIO()
    print_redline(document, Console(file=shown, width=160, color_system=None))
    assert "not judged: 2 people, nobody lost so far" in shown.getvalue()
    assert "pass" not in shown.getvalue().splitlines()[1]


def test_two_missed_turns_are_no_redline() -> None:
    """One group's first two turns are missed, all later ones are met: that is no failure."""
    options = RedlineOptions(target(), crowd_of(["chat-reader:1"], 1), most=1, repeats=1)

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        late = crowd.seed == options.crowd.seed
        return Probed(records_that(0.0)[:2] if late else records_that(1.0), Load(), duration_s)

    document = search(options, options.crowd, probe, None, lambda trial, word: None)
    assert document["redline"] == {"passes": 1, "fails": None, "unjudged": []}
    thin = search(
        replace(options, lengthen=False, most_repeats=1), options.crowd, probe, None,
        lambda trial, word: None,
    )  # fmt: skip
    assert thin["redline"] == {"passes": None, "fails": 1, "unjudged": [1]}
    told = "what fails with 1 person rests on under 20 turns"
    assert any(told in warning for warning in thin["warnings"])


# --- the page of a crowd that nobody serves ---------------------------------------------------


def page_of(document: dict[str, Any]) -> str:
    shown = io.StringIO()
    print_redline(document, Console(file=shown, width=400, color_system=None))
    return shown.getvalue()


def test_nobody_is_told_why_and_what_would_help() -> None:
    """A household with a model that thinks first: the speakers fail, and the page says whose
    target, by how much, where the time went, that it is not the load, and who to leave out."""
    where = target(hardware="dgx-spark", model="gpt-oss-120b", quant="MXFP4", ctx=256_000)
    document = found(where, load_crowd("household"), most=64, duration_s=1800.0)
    assert document["redline"]["passes"] is None
    lost = {row["persona"]: row for row in document["broke"]["groups"]}
    assert set(lost) == {"voice-command", "voice-question"}
    for row in lost.values():
        assert row["wait_s"] > row["target"]["limit_s"] == 1.2
        assert max(row["spent_s"], key=lambda phase: row["spent_s"][phase]) == "reasoning"
        assert sum(row["spent_s"].values()) == pytest.approx(row["wait_s"])
    page = page_of(document)
    wait_s = lost["voice-command"]["wait_s"]
    assert "voice-command wants something to see or hear within 1.2 s" in page
    assert f"A turn took {wait_s:.2f} s on average" in page
    assert "hidden reasoning" in page
    assert not any(row["passes_alone"] for row in lost.values())
    assert "voice-command fails even alone on this box" in page
    assert "a model that answers straight away" in page
    assert "--without voice-command" in page
    assert "--without voice-question" in page


def test_who_passes_alone_is_not_sent_away() -> None:
    """Somebody in a hurry beside somebody whose long prompts stop the box."""
    hasty = replace(
        load_persona("chat-reader"), think_s=Distribution.fixed(5), read_tok_s=None, name="hasty"
    )
    reader = replace(load_persona("summariser"), think_s=Distribution.fixed(1), target=None)
    where = target(hardware="strix-halo-128", slots=4, ctx=128_000)
    document = found(where, Crowd("both", 1, (Group(hasty, 1), Group(reader, 1))), most=2)
    assert document["redline"]["passes"] is None
    (row,) = document["broke"]["groups"]
    assert row["passes_alone"] is True
    page = page_of(document)
    assert "hasty passes alone on this box: it is those beside it who hold it up" in page
    assert "--without" not in page


def test_who_does_not_fit_is_told_what_would_make_room() -> None:
    ops = alone(load_persona("ops-agent"))
    document = found(target(slots=8, ctx=128_000), ops, most=4)
    assert document["broke"]["groups"][0]["failed_share"]["context_exceeded"] > 0.9
    assert "What would help ops-agent: a larger --ctx, or fewer --slots" in page_of(document)


def test_those_left_when_the_page_is_followed_are_served() -> None:
    """Leaving out whom the page names is enough: nobody else failed for their sake."""
    where = target(hardware="dgx-spark", model="gpt-oss-120b", quant="MXFP4", ctx=256_000)
    crowd = load_crowd("household")
    quiet = replace(
        crowd, groups=tuple(g for g in crowd.groups if not g.persona.name.startswith("voice"))
    )
    assert people(found(where, quiet, most=8)) >= 3


def test_shares_near_their_target_are_told_in_tenths() -> None:
    """94.5 % that fail would read 95 %, which pass."""
    options = RedlineOptions(target(), crowd_of(["chat-reader:1"], 1), repeats=1, most=1)
    document = search(
        options, options.crowd, lambda crowd, _: Probed(records_that(0.945), Load(), 1800.0),
        None, lambda trial, word: None,
    )  # fmt: skip
    page = page_of({"world": "measured", "target": "box", **document})
    assert "95.0%" not in page
    assert "95% of turns; 94.5% had it" in page


def test_a_limit_s_share_is_of_the_time_of_all_trials() -> None:
    def trial(window_s: float, share: float) -> Trial:
        row = {"limit": "KV", "share": share, "evidence": f"{share:.0%}"}
        return Trial(3, 1, window_s, 9, [], Load(), [], [row] if share else [], 0.1)

    (row,) = merged_limits([trial(300.0, 0.8), trial(900.0, 0.4), trial(600.0, 0.0)])
    assert row["share"] == pytest.approx((0.8 * 300 + 0.4 * 900) / 1800)
    assert row["evidence"] == "80%"


@pytest.mark.parametrize(("ctx", "told"), [(100_096, True), (40_960, False)])
def test_contexts_that_a_model_does_not_have_are_told(ctx: int, told: bool) -> None:
    where = target(model="qwen3-8b", hardware="dgx-spark", slots=1, ctx=ctx)
    one = alone(load_persona("chat-reader"))
    document = found(where, one, duration_s=60.0, warmup_s=0.0, most=1, repeats=1)
    assert any("beyond the model's own of 40,960" in w for w in document["warnings"]) == told
