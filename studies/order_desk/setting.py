"""What is measured on how much, and the folder in which finished stages wait for the next call."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from strop.app import building
from strop.app.judging import shipped
from strop.config import load
from strop.demo.orders import OrderScenario, scenarios
from strop.errors import InputError
from strop.rollout.limits import Limits
from strop.trajectory.atomic import replacing
from studies.order_desk.policies import PATIENT_S

FIRST = 600
"""The first held-out scenario: none that the demo, its making or the guard's benchmark has looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`scenarios` held-out ones with `attempts` each by the warm start, and at the first `own` of them by
    each trained policy; `seeds` trainings by clipping alone, and `kl_seeds` with a KL. The dear baselines
    are for the first `valued` scenarios: Monte-Carlo values from `completions` of each step, and a judge
    that is asked of each attempt by itself."""

    scenarios: int = 54
    attempts: int = 8
    own: int = 30
    seeds: int = 3
    kl_seeds: int = 1
    valued: int = 18
    completions: int = 4
    seed: int = 0

    def cases(self, count: int) -> list[OrderScenario]:
        """The first held-out scenarios; whole cycles of statuses where their number is a multiple of six."""
        return scenarios("heldout", count, FIRST)

    def limits(self, attempts: int) -> Limits:
        """The demo's, but for the deadline: a busy machine is no failure of an attempt."""
        demo = building.limits(load(shipped("run.toml")))
        return replace(demo, attempts=attempts, deadline_s=PATIENT_S)

    def keep_in(self, work: Path) -> None:
        """Note the setting in the folder. Raises InputError for a folder that was begun with another."""
        record = work / "setting.json"
        if not record.exists():
            with replacing(record) as file:
                file.write(json.dumps(asdict(self), indent=1).encode() + b"\n")
        elif json.loads(record.read_text(encoding="utf-8")) != asdict(self):
            raise InputError(f"{work}: was begun with another setting; give another --work, or delete it")
