"""How far two sides' gradients and weights are from one another, read without a tensor library."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[np.float64]]


def apart(expected: str, found: str) -> dict[str, float]:
    """Distance over length of all LoRA gradients, of the worst tensor, and the cosine.

    `expected` and `found` are what `Job.kept` named. Raises AssertionError where they hold other tensors.
    """
    ours, theirs = (tensors(Path(f"{kept}.gradients")) for kept in (expected, found))
    one, other = _flat(ours, theirs)
    each = [_distance(ours[name].ravel(), theirs[name].ravel()) for name in ours]
    return {
        "gradients": _distance(one, other),
        "worst_tensor": max(each),
        "cosine": _cosine(one, other),
        "tensors": len(ours),
    }


def moved_apart(start: Path, expected: str, found: str, learning_rate: float) -> dict[str, float]:
    """How far the LoRA weights are apart after the first optimizer step, as a share of how far they moved.

    AdamW's first step moves each weight by the learning rate times g / (|g| + 1e-8): by the rate itself, its
    sign that of the gradient, however small that is. So a gradient of the size of its own rounding error may
    move the two sides by up to twice the rate apart; `most_in_rates` is the largest such distance, and
    `apart_share` the share of weights that are more than a hundredth of the rate apart. `cosine_worst` and
    `distance_worst` are of the worst LoRA matrix.
    """
    before = tensors(start / "adapter_model.safetensors")
    ours, theirs = (_moved(before, tensors(Path(f"{kept}.weights"))) for kept in (expected, found))
    one, other = _flat(ours, theirs)
    pairs = [(ours[name].ravel(), theirs[name].ravel()) for name in ours]
    gap = np.abs(one - other) / learning_rate
    return {
        "cosine": _cosine(one, other),
        "cosine_worst": min(_cosine(*pair) for pair in pairs),
        "distance": _distance(one, other),
        "distance_worst": max(_distance(*pair) for pair in pairs),
        "most_in_rates": float(gap.max()),
        "apart_share": float((gap > 0.01).mean()),
    }


def _moved(before: Tensors, after: Tensors) -> Tensors:
    """What the step added to each matrix; those that no side trains are left out."""
    return {name: after[name] - before[name] for name in after}


def _flat(ours: Tensors, theirs: Tensors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())[:2]
    one, other = (np.concatenate([of[name].ravel() for name in sorted(ours)]) for of in (ours, theirs))
    return one, other


def tensors(path: Path) -> Tensors:
    """The float32 tensors of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        assert about["dtype"] == "F32", about
        start, stop = (8 + size + offset for offset in about["data_offsets"])
        values = np.frombuffer(data[start:stop], dtype="<f4").astype(np.float64)
        found[name.replace("base_model.model.", "")] = values.reshape(about["shape"])
    return found


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(one @ other) / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-30)


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(one - other)) / max(float(np.linalg.norm(one)), 1e-30)
