"""A model on a box under a runtime, and the pricer that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headroom_bench.catalog import (
    Hardware,
    Model,
    Quant,
    Runtime,
    find_hardware,
    find_model,
    find_quant,
    find_runtime,
)
from headroom_bench.errors import UserError, unknown_name
from headroom_bench.roofline.constants import (
    BACKENDS,
    Constants,
    constants_for,
    default_backend,
)
from headroom_bench.roofline.iteration import Coefficients
from headroom_bench.roofline.kv import KvBytes, kv_bytes
from headroom_bench.roofline.weights import WeightBytes, weight_bytes

if TYPE_CHECKING:
    from headroom_bench.roofline.passes import Roofline


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is served, where and how. `Deployment.named` makes one from what a user types."""

    model: Model
    hardware: Hardware
    quant: Quant
    runtime: Runtime
    backend: str
    constants: Constants
    kv_k: str = "f16"
    kv_v: str = "f16"
    ubatch: int = 512
    """Tokens that one run over the weights takes at most; longer chunks are read in pieces."""
    slots: int = 1
    """Sequences at once."""
    ctx: int = 4096
    """Tokens of context that each sequence may use."""
    swa_full: bool = False
    """Window layers keep and read everything (llama.cpp's flag of that name)."""

    @classmethod
    def named(
        cls,
        *,
        model: str,
        hardware: str,
        quant: str | None = None,
        runtime: str = "llama.cpp",
        backend: str | None = None,
        kv_k: str = "f16",
        kv_v: str = "f16",
        ubatch: int | None = None,
        slots: int = 1,
        ctx: int = 4096,
        swa_full: bool = False,
    ) -> Deployment:
        """A deployment from names of catalogue entries, or paths of files instead of names.

        `model` may be a GGUF: its tensors then say how weights are stored, and `quant` is neither
        needed nor used. `ubatch` and `backend` default to what the runtime uses on that box.
        Raises `UserError`.
        """
        found = find_model(model)
        box, server = find_hardware(hardware), find_runtime(runtime)
        engine = backend or default_backend(box, server.id)
        if engine not in BACKENDS:
            raise unknown_name("backend", engine, BACKENDS)
        deployment = cls(
            model=found,
            hardware=box,
            quant=quant_of(found, quant, server),
            runtime=server,
            backend=engine,
            constants=constants_for(box, server.id, engine),
            kv_k=kv_k,
            kv_v=kv_v,
            ubatch=default_ubatch(server, box) if ubatch is None else ubatch,
            slots=slots,
            ctx=ctx,
            swa_full=swa_full,
        )
        for name in ("ubatch", "slots", "ctx"):
            if getattr(deployment, name) < 1:
                raise UserError(f"{name} must be 1 or more, not {getattr(deployment, name)}")
        return deployment

    def pricer(self) -> Roofline:
        """Prices passes of this deployment. Raises `UserError` for a partly published shape."""
        from headroom_bench.roofline.passes import Roofline

        return Roofline(self)

    def weights(self) -> WeightBytes:
        """Bytes of weights by role."""
        return weight_bytes(self.model, self.quant)

    def kv(self) -> KvBytes:
        """Cached bytes a token."""
        return kv_bytes(self.model, self.kv_k, self.kv_v, swa_full=self.swa_full)

    def bandwidth_bytes_s(self) -> float:
        """Bandwidth that streaming these weights reaches, in bytes a second."""
        plain = self.hardware.bandwidth_gb_s * 1e9 * self.constants.bandwidth_efficiency.value
        packed = self.quant.kind in ("k-quant", "unsloth dynamic mix")
        return plain * self.constants.kquant_bandwidth_share.value if packed else plain

    def kv_bandwidth_bytes_s(self) -> float:
        """Bandwidth that reading the cache reaches, in bytes a second."""
        plain = self.hardware.bandwidth_gb_s * 1e9 * self.constants.bandwidth_efficiency.value
        return plain * self.constants.kv_bandwidth_share.value

    def compute_flops_s(self) -> float:
        """Rate that large matrix products reach, in FLOPs a second."""
        peak = self.hardware.tflops_dense.fp16_bf16 * 1e12
        return peak * self.constants.compute_efficiency.value


def default_ubatch(runtime: Runtime, hardware: Hardware) -> int:
    """Prompt tokens a run over the weights, by the runtime's defaults (see its entry)."""
    if runtime.id in ("vllm", "sglang"):
        return 8192 if hardware.memory_gb >= 70 else 2048
    return {"mlx": 2048, "tensorrt-llm": 8192}.get(runtime.id, 512)


def quant_of(model: Model, name: str | None, runtime: Runtime) -> Quant:
    """How the weights are stored: as the model's file has them, else as `name` says.

    gpt-oss's MXFP4 leaves other tensors at 8 bits in GGUF files, at 16 in safetensors.
    Raises `UserError`: an unknown name, or none where there is no file.
    """
    quant = find_quant(name) if name is not None else None
    if model.stored:
        return model.stored.quant()
    if quant is None:
        raise UserError(f"{model.name}: how its weights are stored is not known; give --quant")
    if quant.name == "MXFP4" and runtime.id in ("vllm", "sglang", "tensorrt-llm"):
        return find_quant("MXFP4 (safetensors)")
    return quant


def coefficients(deployment: Deployment) -> Coefficients:
    """What each unit of work costs this deployment, in seconds.

    Time of bytes = bytes / (bandwidth * efficiency); time of FLOPs = FLOPs / (peak * efficiency),
    2 FLOPs a parameter a token (Headroom article). A prompt's experts work at m / (m + m_half) of
    the dense efficiency, m the tokens a woken expert gets (fitted form: GB10, M2 Ultra, Strix
    Halo); m_half tokens more for each woken expert is the same thing, written as `tile_s`.
    """
    model, fitted = deployment.model, deployment.constants
    params, stored, kv = model.params(), deployment.weights(), deployment.kv()
    byte_s, flop_s = 1 / deployment.bandwidth_bytes_s(), 1 / deployment.compute_flops_s()
    kv_byte_s = 1 / deployment.kv_bandwidth_bytes_s()
    pair, window_pair = model.attention_flops_per_pair()
    if kv.window_tokens is None:
        pair, window_pair = pair + window_pair, 0.0
    moe, layers = model.moe, stored.moe_layers
    tile = 2 * params.routed_active * flop_s * fitted.expert_half_tokens.value
    return Coefficients(
        always_s=stored.always_read * byte_s,
        expert_s=stored.one_expert * layers * byte_s,
        experts=moe.n_experts if moe else 0,
        experts_per_token=moe.experts_per_token if moe else 0,
        expert_exponent=moe.expert_exponent if moe else 1.0,
        kv_s=kv.full_read * kv_byte_s,
        window_s=kv.window_read * kv_byte_s,
        state_s=2 * kv.state * kv_byte_s,
        body_s=2 * params.body_active * flop_s,
        head_s=2 * params.output * flop_s,
        pair_s=pair * flop_s,
        window_pair_s=window_pair * flop_s,
        tile_s=tile / moe.experts_per_token if moe else 0.0,
        overhead_s=fitted.overhead_s.value,
        launch_s=fitted.expert_launch_s.value * layers,
        batch_s=fitted.expert_batch_s.value * layers,
        p=fitted.overlap_p.value,
    )
