"""The one maker of randomness: every generator and every integer seed is derived by name from a root."""

import hashlib

import numpy as np


def derive(root: int, *names: str | int) -> int:
    """An integer seed in [0, 2**63) for the path `names` under `root`.

    The same arguments always give the same seed, on every machine and Python version; any
    different argument gives an unrelated one (SHA-256 of the length-prefixed path).
    """
    path = "".join(f"{len(str(part))}:{part}" for part in (root, *names))
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1


def generator(root: int, *names: str | int) -> np.random.Generator:
    """A numpy generator seeded by `derive(root, *names)`."""
    return np.random.default_rng(derive(root, *names))
