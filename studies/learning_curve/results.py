"""The study's numbers: both curves over seeds, a third with a third of the rate, and how far they differ."""

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np
from scipy import stats

from strop.stats.intervals import LEVEL, Estimate
from studies.learning_curve.task import Setting

SEEDS = 8
WINDOWS = ((0, 10), (10, 20), (20, 30), (30, 50), (0, 50))
PEER = Path(__file__).with_name("peer.py")

Curves = Mapping[int, Sequence[float]]
"""Mean reward of each step by seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A mean over the steps from `first` to before `last`: both means, standard deviations over seeds, and
    the difference, other minus ours."""

    first: int
    last: int
    ours: float
    other: float
    ours_sd: float
    other_sd: float
    difference: Estimate

    @property
    def within_spread(self) -> bool:
        """Whether the interval holds 0 and the difference is less than the larger standard deviation."""
        found = self.difference
        assert found.estimate is not None
        assert found.low is not None
        assert found.high is not None
        return found.low <= 0 <= found.high and abs(found.estimate) < max(self.ours_sd, self.other_sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """`slower` is ours with a third of the learning rate: a difference that has to be seen."""

    setting: Setting
    peer_version: str
    ours: Curves
    theirs: Curves
    slower: Curves

    def gaps(self, other: Curves) -> list[Gap]:
        """How `other` differs from ours, by window."""
        return [gap(self.ours, other, first, last) for first, last in WINDOWS]


def gap(ours: Curves, other: Curves, first: int, last: int) -> Gap:
    """Welch's interval for the difference of means over seeds, which are independent on both sides.

    Each side needs two seeds or more.
    """
    a, b = (np.array([np.mean(curve[first:last]) for curve in side.values()]) for side in (ours, other))
    variances = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = sqrt(sum(variances))
    difference = float(b.mean() - a.mean())
    freedom = sum(variances) ** 2 / (
        variances[0] ** 2 / (len(a) - 1) + variances[1] ** 2 / (len(b) - 1) or np.inf
    )
    half = float(stats.t.ppf(0.5 + LEVEL / 2, max(freedom, 1.0))) * error
    return Gap(
        first=first,
        last=last,
        ours=float(a.mean()),
        other=float(b.mean()),
        ours_sd=float(a.std(ddof=1)),
        other_sd=float(b.std(ddof=1)),
        difference=Estimate(
            estimate=difference,
            low=difference - half,
            high=difference + half,
            n=len(a) + len(b),
            method=f"Welch {LEVEL:.0%} over seeds",
        ),
    )


def results(peer_python: str, seeds: int = SEEDS, setting: Setting | None = None) -> Results:
    """Train all curves, one after the other, on one thread each."""
    from strop.engines.opening import prepare

    prepare()
    import torch

    from studies.learning_curve.model import write_adapter, write_model

    torch.set_num_threads(1)
    setting = setting or Setting()
    with tempfile.TemporaryDirectory(prefix="strop-curve-") as name:
        folder = Path(name)
        model = write_model(folder / "model")
        adapters = {}
        for seed in range(seeds):
            (folder / f"adapter-{seed}").mkdir()
            adapters[seed] = write_adapter(model, folder / f"adapter-{seed}", setting.rank, seed)
        theirs, version = peer_curves(peer_python, model, adapters, setting)
        slower = replace(setting, learning_rate=setting.learning_rate / 3)
        return Results(
            setting=setting,
            peer_version=version,
            ours=_our_curves(model, adapters, folder / "ours", setting),
            theirs=theirs,
            slower=_our_curves(model, adapters, folder / "slower", slower),
        )


def peer_curves(
    peer_python: str, model: Path, adapters: Mapping[int, Path], setting: Setting
) -> tuple[Curves, str]:
    """The peer's curves and its version. Raises CalledProcessError where it fails."""
    job = {
        "model": str(model),
        "adapters": {str(seed): str(path) for seed, path in adapters.items()},
        "setting": asdict(setting),
    }
    done = subprocess.run(
        [peer_python, str(PEER)],
        input=json.dumps(job) + "\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["seed"]: answer["rewards"] for answer in answers}, answers[0]["version"]


def _our_curves(model: Path, adapters: Mapping[int, Path], folder: Path, setting: Setting) -> Curves:
    from studies.learning_curve.ours import rewards

    folder.mkdir()
    return {
        seed: asyncio.run(rewards(model, path, folder / f"{seed}", setting, seed))
        for seed, path in adapters.items()
    }
