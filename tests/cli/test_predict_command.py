"""`headroom-bench predict` as a user runs it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from cli_answers import answer, refused

from headroom_bench.cli.app import run_app

SPARK = ["predict", "--hardware", "dgx-spark", "--model", "gpt-oss-120b", "--quant", "MXFP4"]


def test_the_contracts_keys(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *SPARK)
    keys = "hardware model quant runtime fit prefill ttft_s decode bandwidth confidence low high"
    assert set(f"{keys} sources".split()) <= set(document)
    assert set(document["fit"]) == {
        "weights_gb", "kv_gb", "overhead_gb", "total_gb", "usable_gb", "fits",
        "max_context_tokens", "max_users",
    }  # fmt: skip
    assert {"tok_s", "bound", "prompt_tokens"} <= set(document["prefill"])
    assert {
        "tok_s_per_user", "tok_s_total", "iteration_ms", "bound", "bytes_per_pass",
        "flops_per_pass", "context_tokens", "users",
    } <= set(document["decode"])  # fmt: skip
    assert set(document["bandwidth"]) == {"spec_gb_s", "achieved_gb_s"}
    assert document["low"] < document["decode"]["tok_s_per_user"] < document["high"]
    assert document["confidence"] in ("MEASURED", "COMMUNITY", "INTERPOLATED", "ESTIMATED")
    assert all(isinstance(source, str) and source for source in document["sources"])
    how = [source.partition(":")[0] for source in document["sources"]]
    known = [word for word in how if word in ("fitted", "assumed")]
    assert set(known) == {"fitted", "assumed"}
    assert known == sorted(known, reverse=True), "the most telling first"
    assert document["fit"]["weights_gb"] == pytest.approx(63.4, rel=0.01)


def test_the_figures_hang_together(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SPARK, "--users", "8", "--context", "8k", "--prompt", "2k")
    decode = d["decode"]
    assert decode["users"] == 8
    assert (decode["context_tokens"], d["prefill"]["prompt_tokens"]) == (8000, 2000)
    assert decode["tok_s_total"] == pytest.approx(8 * decode["tok_s_per_user"])
    assert decode["tok_s_per_user"] == pytest.approx(1e3 / decode["iteration_ms"])
    achieved = decode["bytes_per_pass"] / decode["iteration_ms"] / 1e6
    assert d["bandwidth"]["achieved_gb_s"] == pytest.approx(achieved)
    assert sum(decode["shares"].values()) == pytest.approx(1)
    # A prompt that arrives while seven others decode waits for their tokens, too.
    assert d["ttft_s"] > 2000 / d["prefill"]["tok_s"]
    fit = d["fit"]
    assert fit["total_gb"] == pytest.approx(fit["weights_gb"] + fit["kv_gb"] + fit["overhead_gb"])


def test_tables_patience_levers_and_another_box(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SPARK, "--by", "context", "--patience", "5s", "--vs", "strix-halo-128")
    rates = [row["decode_tok_s_per_user"] for row in d["table"]]
    assert rates == sorted(rates, reverse=True)
    assert d["table"][-1]["context_tokens"] == 131_072
    assert d["vs"]["hardware"].startswith("AMD Ryzen AI Max+ 395")
    assert d["vs"]["backend"] == "vulkan"
    assert len(d["vs"]["table"]) == len(d["table"])
    longest, other = d["patience"]["prompt_tokens"], d["vs"]["patience"]["prompt_tokens"]
    assert longest > other > 0
    within = answer(capsys, *SPARK, "--prompt", str(longest))
    beyond = answer(capsys, *SPARK, "--prompt", str(longest + 1))
    assert within["ttft_s"] <= 5 < beyond["ttft_s"]
    assert any(lever["change"] == "ubatch 2048" for lever in d["levers"])
    assert all(lever["gain"] >= 1.02 for lever in d["levers"])


def test_the_patience_budget_is_of_as_many_users_as_the_rest_of_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first token of the longest prompt arrives in time while all others decode; of one more
    token it does not."""
    longest = []
    for users in ("1", "4", "16"):
        crowd = (*SPARK, "--users", users, "--context", "8k")
        patience = answer(capsys, *crowd, "--patience", "5s")["patience"]
        tokens = patience["prompt_tokens"]
        within = answer(capsys, *crowd, "--prompt", str(tokens))
        beyond = answer(capsys, *crowd, "--prompt", str(tokens + 1))
        assert within["ttft_s"] == patience["ttft_s"] <= 5 < beyond["ttft_s"]
        longest.append(tokens)
    assert longest == sorted(set(longest), reverse=True)
    assert run_app([*crowd, "--patience", "5s"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"{longest[-1]:,} tokens answered within 5 s while 15 decode at 8,000" in page


def test_the_patience_budget_of_the_tuning_article(capsys: pytest.CaptureFixture[str]) -> None:
    # Qwen3.6 35B-A3B on a DGX Spark: about 11,000 tokens within 5 seconds.
    d = answer(
        capsys, "predict", "--hardware", "dgx-spark", "--model", "Qwen3.6 35B-A3B", "--quant",
        "UD-Q4_K_XL", "--ubatch", "2048", "--patience", "5s",
    )  # fmt: skip
    assert d["patience"]["prompt_tokens"] == pytest.approx(11_000, rel=0.15)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["predict"], "notes"),
        (["simulate", "--requests", "2", "--persona", "chat-reader:1"], "warnings"),
        (["redline", "--persona", "chat-reader:1", "--most", "1", "--duration", "1m",
          "--warmup", "1s"], "warnings"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("model", "odd"), [("Llama 3.1 8B", True), ("gpt-oss-20b", False)])
def test_a_format_that_no_file_of_the_model_has_is_told(
    words: list[str],
    field: str,
    model: str,
    odd: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = ["--out", str(tmp_path)] if words[0] == "simulate" else []
    box = ("--hardware", "dgx-spark", "--model", model, "--quant", "MXFP4")
    told = answer(capsys, *words, *box, *out)[field]
    assert any("MXFP4 is a format of experts" in line for line in told) == odd


def test_users_beyond_the_slots_wait(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SPARK, "--users", "6", "--slots", "4")
    assert d["decode"]["users"] == 4
    assert "2 of 6 users wait for a slot" in d["notes"]


def test_a_context_beyond_the_models_own_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    notes = answer(capsys, *SPARK, "--context", "200k")["notes"]
    assert "beyond the model's own context of 131,072 tokens" in notes


def test_drafts_keep_rate_and_length_apart(capsys: pytest.CaptureFixture[str]) -> None:
    gemma = ["predict", "--hardware", "dgx-spark", "--model", "Gemma 4 26B-A4B", "--quant", "Q4_0"]
    plain = answer(capsys, *gemma)["decode"]
    four = answer(capsys, *gemma, "--draft", "mtp:4", "--acceptance-rate", "0.70")["decode"]
    twelve = answer(capsys, *gemma, "--draft", "mtp:12", "--acceptance-rate", "0.41")["decode"]
    # Tuning article: draft 4 at 0.70 gives 3.78 tokens a pass, draft 12 at 0.41 gives 5.86.
    assert four["tokens_per_pass"] == pytest.approx(3.78, rel=0.01)
    assert twelve["tokens_per_pass"] == pytest.approx(5.86, rel=0.02)
    assert four["tok_s_per_user"] > twelve["tok_s_per_user"]
    assert four["tok_s_per_user"] > plain["tok_s_per_user"]
    assert four["tok_s_per_user"] == pytest.approx(103, rel=0.25)  # seed1-0019


def test_a_draft_model_has_to_fit_too(capsys: pytest.CaptureFixture[str]) -> None:
    card = ["predict", "--hardware", "rtx-4090", "--model", "Qwen3 32B", "--quant", "Q4_K_M"]
    card += ["--context", "8k"]
    alone, both = answer(capsys, *card), answer(capsys, *card, "--draft", "qwen3-8b:4")
    assert (alone["fit"]["fits"], both["fit"]["fits"]) == (True, False)
    assert "memory holds Qwen3 8B too: 5.0 GB of weights, 1.18 GB of cache" in both["notes"]
    assert both["fit"]["total_gb"] - alone["fit"]["total_gb"] == pytest.approx(6.2, abs=0.1)


def test_what_is_not_given_is_the_runtimes_default(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SPARK)
    told = answer(capsys, *SPARK, "--runtime", "llama.cpp", "--backend", "cuda", "--ubatch", "512")
    assert d["decode"] == told["decode"]
    assert answer(capsys, *SPARK, "--kv-type", "q8_0")["fit"]["kv_gb"] < d["fit"]["kv_gb"]


def test_a_page_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app([*SPARK, "--users", "4", "--by", "users", "--vs", "strix-halo-128"]) == 0
    page = capsys.readouterr().out
    for words in (
        "memory bandwidth", "fits: ", "what would move it", "by users", "INTERPOLATED",
        "NVIDIA DGX Spark", "AMD Ryzen",
    ):  # fmt: skip
        assert words in page


def test_no_rate_without_its_length(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--users", "4", "--context", "8k", "--prompt", "2k"]
    assert run_app([*SPARK, *words, "--by", "users"]) == 0
    page = capsys.readouterr().out
    for told in (
        "2,000 tokens from the start", "at 8,000 tokens", "decode each at 8,000 tokens",
        "prefill of 2,000 tokens", "by users: prompts of 2,000 tokens, decoding at 8,000 each",
        "prefill tok/s", "decode tok/s each",
    ):  # fmt: skip
        assert told in page
    assert run_app([*SPARK, "--users", "4", "--by", "context"]) == 0
    assert "by context: prompt and context of so many tokens, 4 users" in capsys.readouterr().out


def test_a_grid_says_what_its_figures_are_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.csv"
    file.write_text("hardware,context,users\ndgx-spark,,\ndgx-spark,8k,4\n")
    assert run_app([*SPARK, "--grid", str(file)]) == 0
    plain, told = csv.DictReader(io.StringIO(capsys.readouterr().out))
    names = ("prompt_tokens", "context_tokens", "decode_users")
    assert [plain[name] for name in names] == ["2048", "2048", "1"]
    assert [told[name] for name in names] == ["8000", "8000", "4"]
    rate = float(told["decode_tok_s_per_user"])
    low, high = told["low"], told["high"]
    assert float(low) < rate < float(high)
    low, high = told["prefill_low_tok_s"], told["prefill_high_tok_s"]
    assert float(low) < float(told["prefill_tok_s"]) < float(high)
    assert told["confidence"] == told["prefill_confidence"] == "COMMUNITY"


def test_the_page_says_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["predict", "--hardware", "rtx-4090", *SPARK[3:]]) == 0
    page = capsys.readouterr().out
    assert "does NOT fit" in page
    assert "in host memory (never calibrated)" in page
    assert page.count("bound by host memory") == 2
    assert "ESTIMATED" in page


def test_a_grid_answers_in_row_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "grid.csv"
    file.write_text(
        "hardware,model,quant,runtime,backend,prompt,context,users,kv_type,draft,boxes\n"
        "dgx-spark,gpt-oss-120b,MXFP4,,,,8k,4,,,\n"
        "no-such-box,gpt-oss-120b,MXFP4,,,,,,,,\n"
        "dgx-spark,gpt-oss-120b,MXFP4,vllm,,1024,,,fp8,,2\n"
        "strix-halo-128,Qwen3.6 35B-A3B,UD-Q4_K_XL,,rocm,,,,,mtp:2,\n"
        "dgx-spark,gpt-oss-120b,MXFP4,,,,,0,,,\n"
        ",gpt-oss-120b,MXFP4,,,,,,,,\n"
    )
    found = answer(capsys, "predict", "--grid", str(file))
    assert [("error" in row) for row in found] == [False, True, False, False, True, True]
    assert found[0]["decode"]["users"] == 4
    assert "no-such-box" in found[1]["error"]
    assert "users '0'" in found[4]["error"]
    alone = answer(capsys, *SPARK, "--context", "8k", "--users", "4")
    assert found[0]["decode"] == alone["decode"]
    assert run_app(["predict", "--grid", str(file)]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["hardware"] for line in lines][:2] == ["dgx-spark", "no-such-box"]
    total = found[0]["decode"]["tok_s_total"]
    assert float(lines[0]["decode_tok_s_total"]) == pytest.approx(total, rel=1e-3)
    assert lines[0]["error"] == ""
    assert lines[1]["error"] == found[1]["error"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--acceptance-rate", "0.3"), "nothing is drafted"),
        (("--link", "200gbe-roce"), "there is one box"),
        (("--runtime", "vllm", "--build", "b6989"), "vLLM is not built on llama.cpp"),
        (("--runtime", "vllm", "--kv-unified", "--users", "8"), "vLLM has no slots"),
        (("--kv-unified",), "there is one slot"),
        (("--kv-unified", "--users", "2", "--context", "4k"), "2 x 4,000 tokens, shared or not"),
        (("--identical",), "one user decodes"),
        (("--identical", "--users", "8", "--slots", "1"), "one user decodes"),
        (("--model", "qwen3-8b", "--quant", "Q8_0", "--identical", "--users", "8"), "no experts"),
        (("--model", "qwen3-8b", "--quant", "Q8_0", "--swa-full"), "no window layers"),
    ],
)
def test_a_flag_that_changes_nothing_is_told(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], told: str
) -> None:
    (note,) = [
        note for note in answer(capsys, *SPARK, *flags)["notes"] if "changes nothing" in note
    ]
    assert told in note


@pytest.mark.parametrize(
    "flags",
    [
        ("--acceptance-rate", "0.3", "--draft", "gpt-oss-20b:4"),
        ("--link", "200gbe-roce", "--boxes", "2"),
        ("--runtime", "ollama", "--build", "b6989"),
        ("--hardware", "rtx-4090", "--model", "Llama 3.1 8B", "--kv-unified", "--users", "8"),
        ("--identical", "--users", "8"),
        ("--swa-full",),
    ],
)
def test_one_that_changes_something_is_not(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert not any("changes nothing" in note for note in answer(capsys, *SPARK, *flags)["notes"])


@pytest.mark.parametrize("runtime", ["llama.cpp", "vllm"])
@pytest.mark.parametrize("users", ["1", "4"])
@pytest.mark.parametrize("box", ["dgx-spark", "rtx-4090"])
@pytest.mark.parametrize(
    ("model", "quant"), [("gpt-oss-120b", "MXFP4"), ("Llama 3.1 8B", "Q4_K_M"), ("qwen3-8b", "FP8")]
)
def test_what_is_told_to_change_nothing_changes_nothing_and_no_more_is(
    capsys: pytest.CaptureFixture[str], runtime: str, users: str, box: str, model: str, quant: str
) -> None:
    told = ["--hardware", box, "--model", model, "--quant", quant, "--runtime", runtime]
    asked = ["predict", *told, "--users", users, "--context", "2k"]
    plain = answer(capsys, *asked)
    figures = set(plain) - {"notes", "sources", "levers"}
    for flag in ("--kv-unified", "--swa-full", "--identical"):
        with_it = answer(capsys, *asked, flag)
        same = all(with_it[name] == plain[name] for name in figures)
        assert same == any("changes nothing" in note for note in with_it["notes"]), flag


def test_memory_that_a_runtime_does_not_take_by_itself_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Llama 3.1 8B in 8 bits on a card of 24 GB: 100,000 tokens fit into the 23 that are usable,
    but not into the 22.1 that vLLM takes."""
    flags = "--model", "Llama 3.1 8B", "--quant", "Q8_0", "--context", "100k", "--prompt", "2k"
    asked = ["predict", "--hardware", "rtx-4090", *flags]
    assert answer(capsys, *asked)["fit"]["fits"]
    pages = answer(capsys, *asked, "--runtime", "vllm")
    assert not pages["fit"]["fits"]
    assert pages["fit"]["usable_gb"] == pytest.approx(0.92 * 24)
    assert any("vLLM takes 92% of the memory unless" in note for note in pages["notes"])
    shorter = answer(capsys, *asked, "--runtime", "vllm", "--context", "90k")
    assert not any("unless" in note for note in shorter["notes"])


def test_users_of_one_cache_need_as_much_as_users_of_many(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """131,072 bytes a token: four contexts of 131,072 are 68.7 GB, in one cache too; but one user
    may have the room of all."""
    flags = "--model", "Llama 3.1 8B", "--quant", "Q4_K_M", "--users", "4", "--context", "131072"
    asked = ["predict", "--hardware", "rtx-4090", *flags]
    split, shared = answer(capsys, *asked), answer(capsys, *asked, "--kv-unified")
    assert split["fit"]["kv_gb"] == shared["fit"]["kv_gb"] == pytest.approx(4 * 131_072**2 / 1e9)
    assert shared["fit"]["max_context_tokens"] == 131_072 > split["fit"]["max_context_tokens"]
    (note,) = [note for note in shared["notes"] if "kv_unified" in note]
    assert note.startswith("kv_unified changes the room of a slot alone: context is each user's")
    assert "4 x 131,072 tokens, shared or not (a server's --ctx 524288)" in note


def test_a_link_is_checked_though_one_box_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown network 'no-such-link'" in refused(capsys, *SPARK, "--link", "no-such-link")


def test_flags_stand_for_a_grids_empty_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.csv"
    file.write_text("hardware,users\n,2\nstrix-halo-128,\n")
    one, two = answer(capsys, *SPARK, "--users", "3", "--grid", str(file))
    assert (one["hardware"], one["decode"]["users"]) == ("NVIDIA DGX Spark (GB10)", 2)
    assert (two["backend"], two["decode"]["users"]) == ("vulkan", 3)
    assert "leave out --vs" in refused(
        capsys, "predict", "--grid", str(file), "--vs", "strix-halo-128"
    )


def test_columns_are_named_as_the_flags_are_written_or_with_underscores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.csv"
    file.write_text("kv-type, acceptance-rate,draft,swa-full\nq8_0,0.5,qwen3-0.6b:4,true\n")
    box = ["--hardware", "rtx-4090", "--model", "qwen3-8b", "--quant", "Q8_0"]
    (row,) = answer(capsys, "predict", *box, "--grid", str(file))
    flags = ["--kv-type", "q8_0", "--acceptance-rate", "0.5", "--draft", "qwen3-0.6b:4"]
    alone = answer(capsys, "predict", *box, *flags, "--swa-full")
    assert {name: alone[name] for name in row} == row
    file.write_text(file.read_text().replace("-type", "_type").replace("-rate", "_rate"))
    assert answer(capsys, "predict", *box, "--grid", str(file)) == [row]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hardware,modell\na,b\n", "line 1: unknown column 'modell'"),
        ("hardware,model,hardware \na,b,c\n", "line 1: column 'hardware' stands there twice"),
        ("hardware,model,kv-k,kv_k\n", "line 1: column 'kv_k' stands there twice"),
        ("hardware,model\na,b\na,b,c\n", "line 3: more cells than columns"),
        ("model\nx\n", "line 1: no hardware or no model"),
        ("", "line 1: no hardware or no model"),
    ],
)
def test_a_grid_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    file = tmp_path / "grid.csv"
    file.write_text(text)
    assert told in refused(capsys, "predict", "--grid", str(file))


def test_a_grid_that_is_missing_or_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be read" in refused(capsys, "predict", "--grid", str(tmp_path / "none.csv"))
    (tmp_path / "bytes.csv").write_bytes(b"hardware,model\n\xff\xfe\x00,b\n")
    assert "cannot be read" in refused(capsys, "predict", "--grid", str(tmp_path / "bytes.csv"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["predict"], "predict needs --hardware and --model"),
        ([*SPARK, "--by", "colour"], "by context or users"),
        ([*SPARK, "--patience", "soon"], "--patience 'soon' is not a duration"),
        ([*SPARK, "--context", "12x"], "context '12x' is not a size"),
        ([*SPARK, "--kv-type", "q9"], "unknown KV cache type 'q9'"),
        ([*SPARK, "--vs", "colour=red"], "write a box, or KEY=VALUE"),
        ([*SPARK, "--vs", "no-such-box"], "no-such-box"),
        ([*SPARK, "--draft", "mtp"], "no prediction head"),
        ([*SPARK, "--draft", "mtp:99"], "1 to 64"),
        ([*SPARK, "--acceptance-rate", "7"], "between 0 and 1"),
        ([*SPARK, "--prompt", "9000G"], "prompt '9000G' is larger than 1,073,741,824"),
        ([*SPARK, "--prompt", "20M"], "prompt must be between 1 and 16,777,216"),
        ([*SPARK, "--users", "1000000"], "'1000000' is not a whole number from 1 to 100,000"),
        ([*SPARK, "--backend", "rocm"], "DGX Spark (GB10) cannot use rocm"),
        ([*SPARK, "--runtime", "vllm", "--backend", "metal"], "the runtime has cuda, rocm, xpu"),
        (
            ["predict", "--hardware", "rtx-4090", *SPARK[3:], "--backend", "cpu"],
            "the CPU beside it is not known",
        ),
        ([*SPARK, "--build", "yesterday"], "write it as b6989"),
        ([*SPARK, "--boxes", "2", "--link", "pigeon"], "unknown network"),
        (["predict", "--hardware", "dgx-spark", "--model", "gpt-oss-120b"], "give --quant"),
    ],
)
def test_wrong_words(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert told in refused(capsys, *words)
