"""strop doctor"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strop.cli.options import Json
from strop.cli.output import emit, print_table

if TYPE_CHECKING:
    from strop.config import RunConfig
    from strop.engines.doctor.examine import Report
    from strop.engines.doctor.fit import Fit
    from strop.engines.doctor.need import Stage
    from strop.engines.doctor.versions import Found

DEMO = "strop demo"
WHEN: "Mapping[Stage, str]" = {
    "always": "always",
    "served": "always",
    "loading": "loading",
    "sampling": "sampling",
    "judging": "judging",
    "learning": "learning",
    "publishing": "publishing",
}


def run(
    config: Annotated[
        Path | None, typer.Argument(metavar="[RUN.toml]", help="The run to look at; default: the demo's.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="smollm2, a model folder or a hub name, instead of the run's.")
    ] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(help="A Python that has vLLM; default: the run's, where vLLM serves.")
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Ask the judge's endpoint whether it is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what this machine can run, and what is missing for a run.

    Nothing is started. Exit code 1 where something is missing.
    """
    from strop.engines.doctor.examine import Question, examine

    question = Question(
        config=_settings(config, model),
        of=_named(config, model),
        default=config is None,
        vllm_python=vllm_python,
        network=network,
    )
    found = examine(question)
    if json:
        emit(asdict(found), as_json=True)
    else:
        _print(found)
    sys.stdout.flush()
    if found.missing:
        sys.stderr.write("".join(f"strop: missing: {item}\n" for item in found.missing))
        raise typer.Exit(1)
    if not json:
        print("Nothing stands in the way.")


def _settings(config: Path | None, model: str | None) -> "RunConfig":
    """The run file's settings on the model asked for; without a file the demo's, or a model's defaults."""
    from importlib.resources import as_file, files

    from strop.config import RunConfig, load

    if model is not None and Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser().absolute())
    if config is not None:
        return load(config, [] if model is None else [f"model.name={model}"])
    if model is not None:
        demo = {"scenarios": "demo:order_desk", "agent": "demo:order_desk"}
        return RunConfig.model_validate({"model": {"name": model}, "rollout": demo})
    with as_file(files("strop.demo")) as folder:
        return load(folder / "run.toml", [f"run.directory={Path('runs').absolute()}"])


def _named(config: Path | None, model: str | None) -> str:
    if config is None:
        return DEMO if model is None else f"{model} with default settings"
    return config.name if model is None else f"{config.name} on {model}"


def _print(found: "Report") -> None:
    print_table("strop doctor", (), _machine(found))
    rows = [
        (one.library, one.version or "none", ", ".join(one.tested), one.state)
        for one in (*found.libraries, *_beside_vllm(found))
    ]
    print_table("libraries", ("", "here", "tested with", ""), rows)
    for fit in found.memory:
        _print_fit(found, fit)
    for note in found.notes:
        print(f"note: {note}")


def _beside_vllm(found: "Report") -> "list[Found]":
    """The libraries of vLLM's own Python, by names that tell them from ours."""
    theirs = found.vllm.versions if found.vllm else ()
    return [one if one.library == "vllm" else replace(one, library=f"vLLM's {one.library}") for one in theirs]


def _machine(found: "Report") -> list[tuple[str, str]]:
    machine = found.machine
    free = "" if machine.free is None else f", {_gb(machine.free)} of it free now"
    limited = machine.memory != machine.physical
    memory = f"{_gb(machine.memory)}{free}{f'; the machine has {_gb(machine.physical)}' if limited else ''}"
    rows = [
        ("strop, python", f"{found.strop}, {machine.python} on {machine.system}"),
        ("cores", f"{machine.cores:g}"),
        ("memory", memory),
        ("computes in bfloat16", {None: "unknown", True: "yes", False: "no"}[machine.bfloat16]),
        ("GPU", ", ".join(f"{one.name}, {_gb(one.memory)}" for one in machine.cuda) or "none"),
        ("model", found.model or "not fetched yet"),
    ]
    rows += [(place.what, f"{place.path}, {_gb(place.free)} free") for place in found.places]
    rows += [(f"port {port}", "free" if free else "in use") for port, free in found.ports.items()]
    if found.judge:
        key = "key set" if found.judge.key_set else "key not set"
        rows.append(("judge", f"{found.judge.model}: {key}; {found.judge.said}"))
    if found.vllm:
        rows.append(("vLLM's python", found.vllm.python))
    return rows


def _print_fit(found: "Report", fit: "Fit") -> None:
    rows = [
        (part.part, WHEN[part.stage], f"{part.bytes / 1e9:.2f}", part.made_of)
        for part in sorted(fit.parts, key=lambda part: list(WHEN).index(part.stage))
        if part.bytes
    ]
    rows.append(("most at once", "", f"{fit.total / 1e9:.2f}", f"of {_gb(fit.capacity)}: {fit.verdict}"))
    print_table(f"{fit.where} for {found.of}, an estimate", ("", "when", "GB", ""), rows)


def _gb(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"
