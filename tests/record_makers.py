"""Request records for tests."""

from __future__ import annotations

from typing import Any

from headroom_bench.records import RequestRecord


def record(
    user: int = 0,
    conversation: int = 0,
    turn: int = 0,
    step: int = 0,
    extra: str = "",
    **fields: Any,
) -> RequestRecord:
    """A success of persona `chat`; `fields` replace what it holds."""
    persona = fields.pop("persona", "chat")
    talk = f"{persona}-{user}/c{conversation}"
    made = RequestRecord(
        run_id="run",
        world="measured",
        request_id=f"{talk}/t{turn}/r{step}{'.' + extra if extra else ''}",
        conversation_id=talk,
        persona=persona,
        user=user,
        turn=turn,
        round=step,
        target="mock",
        model="model",
        started_at_s=1.0,
        sent_s=1.0,
        first_byte_s=1.5,
        ttft_s=0.5,
        ttfv_s=0.6,
        end_s=3.0,
        e2e_s=2.0,
        itl_mean_s=0.05,
        tpot_s=0.05,
        decode_tok_s=20.0,
        prompt_tokens=100,
        cached_tokens=40,
        completion_tokens=31,
        ok=True,
    )
    for name, value in fields.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def failed(kind: str = "reset", **fields: Any) -> RequestRecord:
    unknown = dict.fromkeys(
        ("ttft_s", "ttfv_s", "itl_mean_s", "tpot_s", "decode_tok_s", "completion_tokens")
    )
    return record(**{"ok": False, "error_kind": kind, "error": "told", **unknown, **fields})
