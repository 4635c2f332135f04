"""A model on a box under a runtime, and the pricer that it makes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headroom_bench.catalog import (
    BoxLink,
    Hardware,
    Model,
    Quant,
    Runtime,
    find_hardware,
    find_model,
    find_quant,
    find_runtime,
)
from headroom_bench.errors import UserError
from headroom_bench.roofline.backends import as_used, backend_of
from headroom_bench.roofline.calibration import Calibration, calibrated, with_exponent
from headroom_bench.roofline.constants import Constants, constants_for
from headroom_bench.roofline.kv import KvBytes, kv_bytes
from headroom_bench.roofline.links import link_of
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
    pool_tokens: int | None = None
    """Tokens of the one cache that they all share; None where each has its own."""
    swa_full: bool = False
    """Window layers keep and read everything (llama.cpp's flag of that name)."""
    boxes: int = 1
    link: BoxLink | None = None
    """Between the boxes."""
    drafter: Deployment | Literal["mtp"] | None = None
    """What drafts tokens: another model, or the model's own prediction head."""
    calibration: Calibration | None = None
    """Whose constants these are, where the user's own measurements gave them."""
    shipped: Deployment | None = None
    """The same without the calibration: what is known where its measurements do not go."""

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
        build: str | None = None,
        boxes: int = 1,
        link: str | None = None,
        draft: str | None = None,
        calibration: Calibration | None = None,
    ) -> Deployment:
        """A deployment from names of catalogue entries, or paths of files instead of names.

        `model` may be a GGUF: its tensors then say how weights are stored, and `quant` is neither
        needed nor used. `ubatch` and `backend` default to what the runtime uses on that box.
        `build` is a llama.cpp build (b6989), the newest where none is given. `boxes` of them are
        joined by the network `link`, or the box's own link. `draft` is `mtp` or a model's name.
        `calibration` is used where it is of this box, runtime, backend and model. Raises
        `UserError`.
        """
        found = find_model(model)
        box, server = find_hardware(hardware), find_runtime(runtime)
        engine = backend_of(box, server, backend or None)
        joined = link_of(box, link) if boxes > 1 or link is not None else None
        deployment = cls(
            model=found,
            hardware=as_used(box, engine),
            quant=quant_of(found, quant, server),
            runtime=server,
            backend=engine,
            constants=constants_for(box, server.id, engine, build),
            kv_k=kv_k,
            kv_v=kv_v,
            ubatch=default_ubatch(server, box) if ubatch is None else ubatch,
            slots=slots,
            ctx=ctx,
            swa_full=swa_full,
            boxes=boxes,
            link=joined if boxes > 1 else None,
        )
        for name in ("ubatch", "slots", "ctx", "boxes"):
            if getattr(deployment, name) < 1:
                raise UserError(f"{name} must be 1 or more, not {getattr(deployment, name)}")
        if calibration is not None and calibration.serves(deployment):
            deployment = deployment._calibrated(calibration)
        return deployment._with_drafter(draft) if draft else deployment

    def pricer(self) -> Roofline:
        """Prices passes of this deployment. Raises `UserError` for a partly published shape."""
        from headroom_bench.roofline.passes import Roofline

        return Roofline(self)

    @property
    def pass_tokens(self) -> int:
        """Tokens that one pass takes: n_batch, or the token budget that is one run as well."""
        return max(PASS_TOKENS, self.ubatch)

    def weights(self) -> WeightBytes:
        """Bytes of weights by role."""
        return weight_bytes(self.model, self.quant)

    def kv(self) -> KvBytes:
        """Cached bytes a token."""
        return kv_bytes(self.model, self.kv_k, self.kv_v, swa_full=self.swa_full)

    @property
    def draft_model(self) -> Deployment | None:
        """The model that drafts, where it is another one: a prediction head has no file of its
        own."""
        return self.drafter if isinstance(self.drafter, Deployment) else None

    def _calibrated(self, calibration: Calibration) -> Deployment:
        return dataclasses.replace(
            self,
            model=with_exponent(self.model, calibration),
            constants=calibrated(self.constants, calibration),
            calibration=calibration,
            shipped=self,
        )

    def _with_drafter(self, draft: str) -> Deployment:
        """The same with a drafter: `mtp`, or a model in the same format beside it."""
        if draft.lower() == "mtp":
            if not self.model.native_speculative:
                raise UserError(
                    f"{self.model.name} has no prediction head of its own; name a draft model"
                )
            return dataclasses.replace(self, drafter="mtp")
        small = find_model(draft)
        quant = small.stored.quant() if small.stored else self.quant
        return dataclasses.replace(
            self, drafter=dataclasses.replace(self, model=small, quant=quant, swa_full=False)
        )


PASS_TOKENS = 2048
"""Tokens of one pass under llama.cpp, decodes and prompts together (n_batch)."""
GIB = 2**30
LARGE_GPU_GIB = 70
"""From here on vLLM takes larger batches (get_batch_defaults)."""
_SGLANG_CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
"""Memory below so many GiB -> chunked_prefill_size."""


def default_ubatch(runtime: Runtime, hardware: Hardware) -> int:
    """Prompt tokens a run over the weights, by the runtime's defaults (see its entry): llama.cpp's
    n_ubatch, the token budget of vLLM, SGLang and TensorRT-LLM, MLX's prefill step."""
    gib = hardware.memory_gb * 1e9 / GIB
    if runtime.id == "vllm":
        return 8192 if gib >= LARGE_GPU_GIB else 2048
    if runtime.id == "sglang":
        return next((chunk for below, chunk in _SGLANG_CHUNKS if gib < below), 16_384)
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
    return as_served(quant, runtime)


def as_served(quant: Quant, runtime: Runtime) -> Quant:
    """The format of that name in the files that a runtime takes."""
    if quant.name == "MXFP4" and runtime.id in ("vllm", "sglang", "tensorrt-llm"):
        return find_quant("MXFP4 (safetensors)")
    return quant
