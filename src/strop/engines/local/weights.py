"""Load a base model, put adapters on it, and fold an adapter into a copy that serves."""

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.layer import Linear, ParamWrapper
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from strop.engines.adapter_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from strop.engines.local.head import body_of
from strop.errors import ModelError, in_one_line

BEYOND_LORA = ("use_dora", "modules_to_save", "trainable_token_indices", "target_parameters", "lora_bias")
SCALING = ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
DType = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraShape:
    """A LoRA's size: `rank`, `alpha` (scale = alpha / rank), and which layers carry it.

    Only the blocks from `first_layer` on are trained: below it there is no backward pass, and an
    adapter that is there already stays as it is.
    """

    rank: int = 8
    alpha: float = 16
    targets: Literal["all-linear"] | Sequence[str] = "all-linear"
    first_layer: int = 0


def pick_device(asked: str) -> str:
    """The device to run on: what was asked for, or the best there is for "auto"."""
    if asked != "auto":
        return asked
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def pick_dtype(asked: DType, device: str) -> torch.dtype:
    """float32 or bfloat16; "auto" takes bfloat16 where the processor computes in it."""
    if asked == "auto":
        native = device != "cpu" or _has_bf16()
        return torch.bfloat16 if native else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[asked]


def _has_bf16() -> bool:
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def load_base(model: str | Path, dtype: torch.dtype, device: str) -> Any:
    """The bare causal LM, frozen, in eval mode. Raises ModelError where it cannot be read, or not whole."""
    try:
        base, found = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{model}: cannot load this model: {in_one_line(error)}") from error
    if found["missing_keys"]:
        first = min(found["missing_keys"])
        raise ModelError(
            f"{model}: {len(found['missing_keys'])} weights are not in its files, {first} among them; "
            "fetch the model again"
        )
    return base.to(device).eval().requires_grad_(False)


def adapted(base: nn.Module, shape: LoraShape, adapter: Path | None, seed: int) -> PeftModel:
    """A PEFT model over the base's own tensors with two adapters, "policy" (trains) and "reference".

    Both start equal: from the adapter folder given, or from a fresh one whose B is zero. Adapter
    weights are float32 whatever the base computes in. Raises ModelError for an adapter that is not
    there, does not fit the model, or is more than LoRA on the decoder's layers.
    """
    twin = share(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _fresh(twin, shape) if adapter is None else _from_folder(twin, adapter)
        _refuse_beyond_decoder(model, "[lora] targets" if adapter is None else str(adapter))
        model.add_adapter("reference", model.peft_config["policy"])
    copy_adapter(model, "policy", "reference")
    model.set_adapter("policy")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".policy." in name and _layer(name) >= shape.first_layer)
    _let_autocast_choose(model)
    return model.eval()


def wearing(base: nn.Module, adapter: Path) -> nn.Module:
    """The base with one adapter on it, to be read only; the weights are the base's own.

    Raises ModelError as `adapted` does.
    """
    model = _from_folder(share(base), adapter)
    _refuse_beyond_decoder(model, str(adapter))
    _let_autocast_choose(model)
    bare: nn.Module = model.eval().requires_grad_(False).get_base_model()
    return bare


def _layer(name: str) -> int:
    """The number of the block that a parameter belongs to: the first number in its name."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), 0)


def _fresh(twin: Any, shape: LoraShape) -> PeftModel:
    targets = shape.targets if isinstance(shape.targets, str) else list(shape.targets)
    config = LoraConfig(r=shape.rank, lora_alpha=shape.alpha, target_modules=targets, task_type="CAUSAL_LM")
    try:
        with _quiet_peft():
            return get_peft_model(twin, config, adapter_name="policy")
    except ValueError as error:
        raise ModelError(f"[lora]: cannot put this adapter on the model: {in_one_line(error)}") from error


def _from_folder(twin: Any, adapter: Path) -> PeftModel:
    config = _read_config(adapter)
    extra = [name for name in BEYOND_LORA if config.get(name)]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or extra:
        what = ", ".join(extra) or f"{config.get('peft_type')} with bias {config.get('bias')}"
        raise ModelError(f"{adapter}: not a plain LoRA ({what}), which is all that can be trained and served")
    try:
        with _quiet_peft():
            model = PeftModel.from_pretrained(
                twin, str(adapter), adapter_name="policy", is_trainable=True, autocast_adapter_dtype=True
            )
    except (OSError, ValueError, RuntimeError, TypeError, SafetensorError) as error:
        raise ModelError(f"{adapter}: cannot read this adapter: {in_one_line(error)}") from error
    refuse_other_shape(adapter, read_adapter(adapter), adapter_tensors(model, "policy"))
    return model


@contextmanager
def _quiet_peft() -> Iterator[None]:
    """Without the warnings that tell a user nothing: of weights missing from an adapter's file, which is
    an error here, and of PEFT's own use of an old name in transformers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found missing adapter keys")
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        warnings.filterwarnings("ignore", message="The following rank_pattern keys did not match")
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
        yield


def _refuse_beyond_decoder(model: PeftModel, where: str) -> None:
    """Logits are read with the base's own head, from the base's own embeddings: both stay without LoRA."""
    base = model.get_base_model()
    for name, layer in base.named_modules():
        if isinstance(layer, ParamWrapper):
            raise ModelError(f"{where}: {name}, experts, cannot carry a LoRA; name attention layers instead")
    decoder = {id(module) for module in body_of(base).modules()}
    for name, layer in base.named_modules():
        if isinstance(layer, BaseTunerLayer) and (
            id(layer) not in decoder or isinstance(layer.get_base_layer(), nn.Embedding)
        ):
            raise ModelError(f"{where}: {name} cannot carry a LoRA; only the decoder's linear layers can")


def _read_config(adapter: Path) -> dict[str, Any]:
    try:
        config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{adapter}: no adapter here (adapter_config.json is missing)") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{adapter}: cannot read adapter_config.json: {in_one_line(error)}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{adapter}: adapter_config.json holds no table")
    return config


def read_adapter(folder: Path) -> dict[str, Tensor]:
    """The tensors of an adapter folder by PEFT's names. Raises ModelError where they cannot be read."""
    try:
        return load_file(folder / ADAPTER_WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{folder}: cannot read adapter_model.safetensors: {in_one_line(error)}") from error


def refuse_other_shape(where: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise ModelError unless `found` has the names and shapes of `wanted`, naming one that differs."""
    for key in sorted({*found, *wanted}):
        has, needs = (tuple(of[key].shape) if key in of else "nothing" for of in (found, wanted))
        if has != needs:
            raise ModelError(
                f"{where}: the adapter has another shape than this model's: {key} is {has}, not {needs}; "
                "base model, [lora] rank and targets must agree"
            )


@torch.no_grad()
def set_reference(model: PeftModel, reference: Path | Literal["base"]) -> None:
    """Make the reference something else than the start: an adapter folder, or the bare base.

    Raises ModelError where the adapter cannot be read or has another shape or scale than the policy's.
    """
    own = adapter_tensors(model, "reference")
    if reference == "base":
        for key, tensor in own.items():
            if "lora_B" in key:
                tensor.zero_()
        return
    folder = Path(reference)
    config, policy = _read_config(folder), model.peft_config["policy"].to_dict()
    for name in SCALING:
        if (config.get(name) or None) != (policy[name] or None):
            raise ModelError(
                f"{folder}: {name} is {config.get(name)}, the policy's adapter has {policy[name]}"
            )
    overwrite(own, read_adapter(folder), folder)


def _let_autocast_choose(model: nn.Module) -> None:
    """PEFT would cast every activation to the adapter's float32 and back; autocast casts once."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.cast_input_dtype_enabled = False


def share(model: nn.Module) -> Any:
    """A structural copy of a module that holds the same parameter and buffer tensors."""
    memo = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo)


def adapter_tensors(model: nn.Module, name: str) -> dict[str, Tensor]:
    """One adapter's parameters by their name without the adapter's."""
    return {
        key.replace(f".{name}.", "."): parameter
        for key, parameter in model.named_parameters()
        if f".{name}." in key
    }


@torch.no_grad()
def overwrite(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy an adapter's weights over one's own in place. Raises ModelError for another shape."""
    refuse_other_shape(where, tensors, own)
    for key, tensor in own.items():
        tensor.copy_(tensors[key])


@torch.no_grad()
def copy_adapter(model: nn.Module, source: str, target: str) -> None:
    """Copy one adapter's weights over another's."""
    into = adapter_tensors(model, target)
    for key, tensor in adapter_tensors(model, source).items():
        into[key].copy_(tensor)


@torch.no_grad()
def folded(base: nn.Module, model: PeftModel, adapter: str) -> Any:
    """A serving copy: the base with the adapter added into its weights; all else is shared.

    The sum is made in float32 and rounded once to the base's dtype, from the unchanged base, so
    nothing drifts over versions. The new weights lie in one block of memory, in the model's order.
    """
    serving = share(base)
    modules = dict(serving.named_modules())
    worn = {
        name: layer
        for name, layer in model.get_base_model().named_modules()
        if adapter in getattr(layer, "lora_A", {})
    }
    rooms = _rooms([modules[name].weight for name in worn])
    # Fresh memory for each matrix would cost as much as all that is computed: its pages are made one by one.
    scratch = torch.empty(max((room.numel() for room in rooms), default=0), device=model.device)
    for (name, layer), room in zip(worn.items(), rooms, strict=True):
        wide = room if room.dtype == torch.float32 else scratch[: room.numel()].view(room.shape)
        room.copy_(_add_delta(wide.copy_(modules[name].weight), layer, adapter))
        modules[name].weight = nn.Parameter(room, requires_grad=False)
    return serving.eval()


def _add_delta(weight: Tensor, layer: Any, adapter: str) -> Tensor:
    """Add what an adapter adds to a layer's weight, float32 [out, in], in place."""
    if type(layer) is not Linear or layer.fan_in_fan_out or adapter in layer.lora_variant:
        return weight.add_(layer.get_delta_weight(adapter))
    a, b = (side[adapter].weight.float() for side in (layer.lora_A, layer.lora_B))
    return weight.addmm_(b, a, alpha=layer.scaling[adapter])


def _rooms(weights: Sequence[Tensor]) -> list[Tensor]:
    """Uninitialised memory for tensors like these, one after another in one block."""
    if not weights:
        return []
    block = weights[0].new_empty(sum(weight.numel() for weight in weights))
    parts = torch.split(block, [weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def adapter_config(model: PeftModel) -> Mapping[str, Any]:
    """The policy adapter's PEFT configuration, naming no machine's folder."""
    return {**model.peft_config["policy"].to_dict(), "base_model_name_or_path": None, "inference_mode": True}


def save_adapter(model: PeftModel, path: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write the policy adapter in PEFT's own format (readable by PEFT and vLLM) into the folder `path`."""
    path.mkdir(parents=True, exist_ok=True)
    tensors = {
        k: t.detach().to(dtype).cpu().contiguous() for k, t in adapter_tensors(model, "policy").items()
    }
    save_file(tensors, path / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    text = json.dumps(adapter_config(model), indent=2, default=_jsonable, sort_keys=True)
    (path / ADAPTER_CONFIG).write_text(text + "\n")


def _jsonable(value: object) -> object:
    return sorted(value) if isinstance(value, set) else str(value)
