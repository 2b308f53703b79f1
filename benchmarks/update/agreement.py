"""How far the gradients of two sides are from one another, read without a tensor library."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def apart(expected: str, found: str) -> dict[str, float]:
    """Distance over length of all LoRA gradients, of the worst tensor, and the cosine.

    Raises AssertionError where the files hold other tensors.
    """
    ours, theirs = gradients(Path(expected)), gradients(Path(found))
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())[:2]
    one = np.concatenate([ours[name].ravel() for name in sorted(ours)])
    other = np.concatenate([theirs[name].ravel() for name in sorted(ours)])
    each = [_distance(ours[name].ravel(), theirs[name].ravel()) for name in ours]
    return {
        "gradients": _distance(one, other),
        "worst_tensor": max(each),
        "cosine": float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other))),
        "tensors": len(ours),
    }


def gradients(path: Path) -> Mapping[str, NDArray[np.float64]]:
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


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(one - other) / max(np.linalg.norm(one), 1e-30))
