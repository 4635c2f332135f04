"""Names of architectures whose figures mean what our readers take them for."""

from __future__ import annotations

# fmt: off
KNOWN_ARCHITECTURES = frozenset((
    "baichuan", "bailingmoe", "bailingmoe2", "chatglm", "cohere2", "command-r", "deci",
    "deepseek", "deepseek2", "dots1", "ernie4_5", "ernie4_5-moe", "exaone", "exaone4", "falcon",
    "falcon-h1", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "glm-dsa", "glm4", "glm4moe",
    "gpt-oss", "gpt2", "gptneox", "granite", "granitehybrid", "granitemoe", "hunyuan-dense",
    "hunyuan-moe", "internlm2", "jamba", "kimi-linear", "lfm2", "lfm2moe", "llama", "llama4",
    "mimo2", "minicpm", "minicpm3", "minimax-m2", "mistral3", "mistral4", "nemotron",
    "nemotron_h", "nemotron_h_moe", "olmo", "olmo2", "olmoe", "openelm", "phi2", "phi3", "phimoe",
    "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
    "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3", "stablelm", "starcoder2",
))
"""`general.architecture` of GGUF files (llama.cpp, `llama-arch.cpp`)."""

KNOWN_MODEL_TYPES = frozenset((
    "llama", "llama4", "llama4_text", "nemotron-nas", "mistral", "mistral3", "ministral",
    "ministral3", "mistral4", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next",
    "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen2_5_vl", "qwen2_5_vl_text",
    "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "gemma", "gemma2", "gemma3",
    "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gpt_oss", "deepseek_v2",
    "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "kimi_linear", "glm4", "glm4_moe",
    "glm4_moe_lite", "glm_moe_dsa", "glm4v_moe_text", "minimax_m2", "minimax_m3_vl",
    "minimax_m3_vl_text", "nemotron_h", "granite", "granitemoe", "granitemoehybrid", "bamba",
    "falcon", "falcon_h1", "lfm2", "lfm2_moe", "phi", "phi3", "phimoe", "cohere", "cohere2",
    "olmo", "olmo2", "olmo3", "exaone4", "hunyuan_v1_moe", "hunyuan_v1_dense", "ernie4_5",
    "ernie4_5_moe", "seed_oss", "mimo", "mimo_v2_flash", "step3p7", "smollm3", "starcoder2",
    "stablelm",
))
"""`model_type` of transformers' config.json files (v5.24)."""

TIED_UNLESS_SAID = frozenset((
    "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4",
    "gemma4_text", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "falcon", "lfm2", "lfm2_moe",
    "smollm3", "starcoder2",
))
"""Model types whose default is one matrix for both ends (transformers v5.24, `configuration_*`)."""

TWO_MATRIX_FFN = frozenset((
    "phi", "falcon", "starcoder2", "nemotron", "nemotron_h", "gpt2", "gpt_neox", "opt", "bloom",
    "mpt",
))
"""Model types whose FFN has no gate."""
# fmt: on
