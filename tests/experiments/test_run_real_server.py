"""The whole path against a real llama.cpp server on this machine's CPU, in real time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from run_tools import Ran, headroom, running

SHIPPED = Path(__file__).parents[2] / "targets" / "local-llamacpp.toml"


@pytest.fixture(scope="module")
def ran(smollm2: Path, xllamacpp: None, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """`run local-llamacpp --crowd tiny`, with the model wherever it is here."""
    folder = tmp_path_factory.mktemp("real")
    target = folder / "local-llamacpp.toml"
    text = SHIPPED.read_text().replace('model_file = "smollm2"', f'model_file = "{smollm2}"')
    # One thread: two that spin on two busy cores fall to a token a second.
    target.write_text(text.replace('"--slots"', '"--threads", "1", "--slots"'))
    out = folder / "results"
    return headroom("run", str(target), "--crowd", "tiny", "--duration", "12s", out=out)


def test_it_ends_well(ran: Ran) -> None:
    assert ran.code == 0, ran.err
    assert ran.json("manifest.json")["status"] == "complete"
    rows = ran.rows("requests.jsonl")
    assert len(rows) >= 5
    assert all(row["ok"] for row in rows), [row["error"] for row in rows if not row["ok"]]
    assert {row["persona"] for row in rows} == {"tiny-chat", "tiny-voice"}
    assert "verdict (measured)" in ran.out


def test_the_server_is_gone(ran: Ran) -> None:
    log = (ran.run / "server.log").read_text()
    port = log.rsplit("listening on http://127.0.0.1:", 1)[1].split()[0]
    assert running(f"--port\0{port}") == []


def test_the_journal_is_joined_exactly(ran: Ran) -> None:
    report = ran.json("journal_join.json")
    assert report["matched_share"] >= 0.95
    assert report["unmatched_records"] == 0
    requests = {row["request_id"]: row for row in ran.rows("requests.jsonl")}
    joined = [row for row in ran.rows("journal.jsonl") if row["request_id"]]
    assert len(joined) == report["matched"]
    for entry in joined:
        record = requests[entry["request_id"]]
        assert entry["join_method"] == "exact"
        assert entry["prompt_eval_tokens"] + entry["cached_tokens"] == record["prompt_tokens"]
        assert entry["gen_tokens"] == record["completion_tokens"]


def test_the_clients_decode_rate_is_the_servers(ran: Ran) -> None:
    """Where all tokens showed: the server's time includes that of an end of sequence, which shows
    in no event, and may have waited while another's prompt was read."""
    journal = {row["request_id"]: row for row in ran.rows("journal.jsonl")}
    compared = 0
    for record in ran.rows("requests.jsonl"):
        whole = record["stream_events"] == record["completion_tokens"]
        if record["valid"] and whole and record["completion_tokens"] >= 10:
            entry = journal[record["request_id"]]
            server_tok_s = (entry["gen_tokens"] - 1) / (entry["eval_ms"] / 1e3)
            assert record["decode_tok_s"] == pytest.approx(server_tok_s, rel=0.1)
            compared += 1
    assert compared >= 3


def test_prompts_are_distinct_and_grow_with_the_real_answers(ran: Ran) -> None:
    rows = sorted(ran.rows("requests.jsonl"), key=lambda row: row["started_at_s"])
    talks: dict[str, list[dict[str, int]]] = {}
    for row in rows:
        talks.setdefault(row["conversation_id"], []).append(row)
    grown = 0
    for talk in talks.values():
        for earlier, later in itertools.pairwise(talk):
            assert later["prompt_tokens"] > earlier["prompt_tokens"] + earlier["completion_tokens"]
            # All but the last generated token is in the slot, unless another took it over.
            assert later["cached_tokens"] <= later["prompt_tokens"]
            grown += later["cached_tokens"] >= earlier["prompt_tokens"]
    assert grown >= 1


def test_the_prediction_has_the_same_requests(ran: Ran) -> None:
    measured = {row["request_id"]: row for row in ran.rows("requests.jsonl")}
    predicted = {row["request_id"]: row for row in ran.rows("predicted.jsonl")}
    assert predicted.keys() == measured.keys()
    for request_id, row in predicted.items():
        assert row["prompt_tokens"] == measured[request_id]["prompt_tokens"]
        assert row["completion_tokens"] == measured[request_id]["completion_tokens"]
        assert row["world"] == "predicted"
