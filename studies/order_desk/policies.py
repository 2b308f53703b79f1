"""The policies whose grades are measured: the demo's training, alone, by seed and weight of the KL."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strop import app
from strop.app.judging import shipped
from strop.config import load
from strop.errors import InputError
from strop.store import checkpoints
from strop.store.run import Run

WARM_START = "adapters/warmstart"
KL = 0.2
PATIENT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One training. `kl_coef` 0 is the demo's own: clipping alone, no KL."""

    seed: int
    kl_coef: float = 0.0

    @property
    def name(self) -> str:
        return f"seed-{self.seed}" + (f"-kl-{self.kl_coef:g}" if self.kl_coef else "")


def policies(seeds: int, kl_seeds: int) -> list[Policy]:
    """Clip-only trainings by seed, then those with KL."""
    return [Policy(seed=s) for s in range(seeds)] + [Policy(seed=s, kl_coef=KL) for s in range(kl_seeds)]


def reference() -> Path:
    """The adapter that every training starts from."""
    return shipped(WARM_START)


def adapter(policy: Policy, runs: Path, given: Sequence[Path] = ()) -> Path:
    """The folder of the trained adapter: of a `given` run of that seed and KL, or of one in `runs`, which is
    begun where it is not there and gone on with where it was stopped."""
    known = {of_run(run): run for run in given}
    if policy in known:
        return last_adapter(known[policy])
    folder = runs / policy.name
    if not (folder / "summary.json").exists():
        app.train(load(shipped("run.toml"), _overrides(policy, folder)), resume=folder.exists())
    return last_adapter(folder)


def of_run(run: Path) -> Policy:
    """Which training a run is."""
    training = tomllib.loads((run / "run.toml").read_text(encoding="utf-8"))["training"]
    return Policy(seed=training["seed"], kl_coef=training["kl_coef"])


def last_adapter(run: Path) -> Path:
    """The adapter of a run's latest checkpoint, verified. Raises InputError or ModelError where there is
    none."""
    found = checkpoints.latest(Run.view(run))
    if found is None:
        raise InputError(f"{run}: holds no checkpoint; give a run that was trained to its end")
    return found.path / "adapter"


def _overrides(policy: Policy, folder: Path) -> Sequence[str]:
    """The demo's run file but for seed and KL, without its evaluation; a busy machine fails no attempt."""
    return (
        f"training.seed={policy.seed}",
        f"training.kl_coef={policy.kl_coef}",
        f"run.directory={folder.absolute()}",
        "evaluation.heldout=0",
        f"rollout.deadline_s={PATIENT_S}",
        f"judge.timeout_s={PATIENT_S}",
    )
