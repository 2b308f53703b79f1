"""Where scenarios and attempts of a run come from: the order desk, or a user's file and agent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strop.config import RunConfig
from strop.demo.desk import desk_scenario, open_desk
from strop.demo.orders import STATUSES, scenarios
from strop.errors import ConfigError
from strop.rollout.agent import MakeAttempt
from strop.rollout.environment import Scenario
from strop.rollout.limits import Limits
from strop.rollout.loading import load_attempts
from strop.rollout.scenarios import read_scenarios
from strop.rollout.tool_agent import environment_attempts
from strop.seeds import derive, generator

ORDER_DESK = "demo:order_desk"
DESK_TRAINING = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`training(step)` gives the scenarios of a training step; `heldout` are never trained on."""

    training: Callable[[int], Sequence[Scenario]]
    heldout: Sequence[Scenario]
    attempt: MakeAttempt


def source(config: RunConfig, limits: Limits) -> Source:
    """Scenarios and attempts as the run file asks. Raises ConfigError or InputError where it cannot be."""
    rollout = config.rollout
    if (rollout.scenarios == ORDER_DESK) != (rollout.agent == ORDER_DESK):
        raise ConfigError(f"[rollout] {ORDER_DESK}: scenarios and agent belong together")
    return _order_desk(config, limits) if rollout.agent == ORDER_DESK else _from_files(config)


def _order_desk(config: RunConfig, limits: Limits) -> Source:
    seed, size = config.training.seed, config.rollout.groups_per_step
    if not isinstance(config.evaluation.heldout, int):
        raise ConfigError("[evaluation] heldout: the order desk has its own; give a number")
    # Whole cycles of statuses, so that a seed begins where another might, but never inside a cycle.
    first = derive(seed, "first scenario") % (DESK_TRAINING // len(STATUSES)) * len(STATUSES)

    def training(step: int) -> list[Scenario]:
        indices = [(first + step * size + k) % DESK_TRAINING for k in range(size)]
        return [desk_scenario(scenarios("train", 1, index)[0]) for index in indices]

    return Source(
        training=training,
        heldout=[desk_scenario(case) for case in scenarios("heldout", config.evaluation.heldout)],
        attempt=environment_attempts(open_desk, limits, seed=seed),
    )


def _from_files(config: RunConfig) -> Source:
    rollout, heldout = config.rollout, config.evaluation.heldout
    if not rollout.agent or isinstance(rollout.scenarios, str):
        raise ConfigError(f"[rollout] scenarios {rollout.scenarios!r}: no such built-in set")
    every = read_scenarios(rollout.scenarios)
    if isinstance(heldout, int):
        if heldout > len(every):
            raise ConfigError(f"[evaluation] heldout is {heldout}, but there are {len(every)} scenarios")
        kept, train = every[len(every) - heldout :], every[: len(every) - heldout]
    else:
        kept, train = read_scenarios(heldout), every
    shared = {s.scenario_id for s in kept} & {s.scenario_id for s in train}
    if shared:
        raise ConfigError(f"[evaluation] heldout: {sorted(shared)[0]!r} is also trained on; they must differ")
    if len(train) < rollout.groups_per_step:
        raise ConfigError(
            f"[rollout] groups_per_step is {rollout.groups_per_step}, "
            f"but {len(train)} scenarios are left to train on"
        )
    order = _Shuffled(train, rollout.groups_per_step, config.training.seed)
    return Source(training=order, heldout=kept, attempt=load_attempts(rollout.agent))


@dataclass(frozen=True, slots=True)
class _Shuffled:
    """Epochs of shuffled scenarios, cut into steps; what is left of an epoch is dropped."""

    scenarios: Sequence[Scenario]
    size: int
    seed: int

    def __call__(self, step: int) -> list[Scenario]:
        a_epoch = len(self.scenarios) // self.size
        epoch, place = divmod(step, a_epoch)
        order = generator(self.seed, "epoch", epoch).permutation(len(self.scenarios))
        return [self.scenarios[int(i)] for i in order[place * self.size : (place + 1) * self.size]]
