"""A peer in an environment of its own: whether it is there, and which version."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from strop.errors import InputError

ANSWERS_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPackage:
    """A package by its `name` and the module that must import; `variable` may name its Python."""

    name: str
    module: str
    variable: str


def find_peer(
    package: PeerPackage, python: str | None, environment: Mapping[str, str], missing: list[str]
) -> str | None:
    """The Python that has the peer; None, and a word in `missing`, where none does."""
    if not python:
        missing.append(
            f"{package.name}: give --peer-python or {package.variable}; see --help for how to make it"
        )
        return None
    try:
        print(f"peer: {package.name} {peer_version(package, python, environment)}", file=sys.stderr)
    except InputError as error:
        missing.append(str(error))
        return None
    return python


def peer_version(package: PeerPackage, python: str, environment: Mapping[str, str]) -> str:
    """The version of the package under that Python. Raises InputError, one line, where it has none."""
    probe = (
        f"from importlib.metadata import version; import {package.module}; print(version('{package.name}'))"
    )
    command = [python, "-I", "-c", probe]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{python}: cannot be run ({error}); name a Python that has {package.name}"
        ) from error
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise InputError(
            f"{python}: {package.name} cannot be imported ({said}); see --help for how to make it"
        )
    return asked.stdout.strip().splitlines()[-1]
