"""Grade a file of trajectories: streamed through, kept beside `out` until whole, gone on with if stopped."""

import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from strop.app.building import vllm_settings
from strop.app.kept_lines import append, kept
from strop.app.progress import OnProgress, silent
from strop.app.rewarding import Reading, RewardAsked, Scoring, check_rewards, joined, write_column
from strop.config.engine import EngineConfig
from strop.engines import opening
from strop.engines.adapter_files import ADAPTER_CONFIG
from strop.engines.opening import prepare
from strop.errors import ConfigError, InputError
from strop.grader.codec import to_json
from strop.grader.grade import GradeSettings, grade_prepared
from strop.grader.plain import plain_kinds
from strop.grader.prepare import Prepared, from_plain, from_turns
from strop.grader.sliding import Long
from strop.grader.spans import text_kinds
from strop.inference.chat import Chat
from strop.inference.sampling import Tokenizer
from strop.training.demonstrations import as_turns
from strop.trajectory import codec
from strop.trajectory.atomic import replacing, sync_directory
from strop.trajectory.lines import write_objects
from strop.trajectory.model import Trajectory

if TYPE_CHECKING:
    from strop.engines.local.contrast import ContrastConfig
    from strop.engines.vllm.settings import VllmSettings

Format = Literal["chat", "plain", "plain-all"]
WORK = ".work"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeJob:
    """`file` is graded into `out`. `policy` and `references` are adapter folders over `model`, or models.

    No reference: the bare `model`, for a policy that is an adapter. `text` is how messages without
    recorded token ids become tokens: "chat" by the model's template; "plain" in the plain format, also
    of trajectories with ids; "plain-all" the same with every message graded. `long`, `max_length`: see
    `strop.grader.sliding`; `tokens` writes single tokens' numbers too. `rewards` are trained reward models,
    each a column beside the grades. `engine` says who reads all sides: this process, or a vLLM server, which
    gives log-probs only.
    """

    file: Path
    out: Path
    policy: str
    references: tuple[str, ...] = ()
    model: str = "smollm2"
    text: Format = "chat"
    long: Long = "slide"
    max_length: int | None = None
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    tokens: bool = False
    rewards: tuple[RewardAsked, ...] = ()
    engine: EngineConfig = field(default_factory=EngineConfig)
    progress: OnProgress = silent

    @property
    def reading(self) -> Reading:
        """What holds for reward models too."""
        return Reading(text=self.text, max_length=self.max_length, dtype=self.dtype)


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What came of the lines so far."""

    graded: int = 0
    steps: int = 0
    unscored_steps: int = 0
    tokens: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    proof: dict[str, Any] = field(default_factory=dict)

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one line of grades."""
        if line["ungraded"]:
            self.reasons[line["ungraded"]] += 1
            return
        self.graded += 1
        self.steps += len(line["steps"])
        self.unscored_steps += len(line["unscored"])
        self.tokens += sum(step["n_tokens"] for step in line["steps"])


def grade_file(job: GradeJob) -> dict[str, Any]:
    """Grade every step, a JSON line a trajectory in the file's order, and say what it came to.

    Lines are kept in a folder beside `out` until all are there; the same command goes on where a killed
    one stopped. Memory does not grow with the file. Raises InputError for a file or line that cannot be
    used and for a folder that another command began, ModelError for models that cannot be read.
    """
    _check(job)
    prepare()
    kinds = check_rewards(job.rewards, job.reading)
    job.progress("reading")
    total, digest = _survey(job.file)
    work = job.out.with_name(f"{job.out.name}{WORK}")
    _begin(work, _written(job, digest))
    tally = _Tally()
    done = kept(work / "grades.jsonl", tally.add)
    began = time.perf_counter()
    try:
        append(work / "grades.jsonl", _lines(job, done, total, tally), tally.add)
    except BaseException:
        if not tally.graded + tally.reasons.total():
            shutil.rmtree(work, ignore_errors=True)
        raise
    rewards = {name: kinds[name] | found for name, found in _finished(job, work, total).items()}
    shutil.rmtree(work, ignore_errors=True)
    return _result(job, tally, done, time.perf_counter() - began) | ({"rewards": rewards} if rewards else {})


def _finished(job: GradeJob, work: Path, total: int) -> dict[str, Any]:
    """Put the grades in their place, with the columns of reward models, and say what those came to."""
    found: dict[str, Any] = {}
    files = []
    for number, model in enumerate(job.rewards):
        files.append(work / f"rewards-{number}.jsonl")
        found[model.name] = write_column(
            Scoring(
                file=job.file,
                total=total,
                kept_in=files[-1],
                model=model,
                reading=job.reading,
                progress=job.progress,
            )
        )
    if files:
        write_objects(job.out, joined(work / "grades.jsonl", files))
        return found
    os.replace(work / "grades.jsonl", job.out)
    sync_directory(job.out.parent)
    return found


def _check(job: GradeJob) -> None:
    """Before a model is loaded."""
    if job.text not in get_args(Format):
        raise ConfigError(f"--format {job.text}: one of {', '.join(get_args(Format))}")
    if job.long not in get_args(Long):
        raise ConfigError(f"--long {job.long}: one of {', '.join(get_args(Long))}")
    if job.max_length is not None and job.max_length < 2:
        raise ConfigError(f"--max-length {job.max_length}: at least 2, one token to grade and one before it")
    if job.out.is_dir() or (job.out.exists() and job.file.exists() and job.out.samefile(job.file)):
        what = "a folder" if job.out.is_dir() else "the file that is graded"
        raise InputError(f"--out {job.out}: is {what}; give another file")
    if len({_name(reference) for reference in job.references}) < len(job.references):
        raise ConfigError("--reference: the same one twice, or two of one name; each is a column of its own")
    if not job.references and not _is_adapter(job.policy):
        raise ConfigError(
            f"--policy {job.policy}: no adapter folder ({ADAPTER_CONFIG} is missing), so there is no bare "
            "model to read it against; name a --reference"
        )


def _is_adapter(name: str) -> bool:
    return (Path(name).expanduser() / ADAPTER_CONFIG).is_file()


def _name(reference: str) -> str:
    """What a reference is called in the grades."""
    return Path(reference).name or reference


def _survey(file: Path) -> tuple[int, str]:
    """Lines that are not blank, and the SHA-256 of the file."""
    found, lines = hashlib.sha256(), 0
    try:
        with open(file, "rb") as handle:
            for raw in handle:
                found.update(raw)
                lines += bool(raw.strip())
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); check the path") from error
    return lines, found.hexdigest()


def _written(job: GradeJob, digest: str) -> dict[str, Any]:
    """All that the lines depend on."""
    named = (job.policy, *job.references, job.model, *(one.model for one in job.rewards))
    models = {name: _stamp(name) for name in named}
    how = {name: getattr(job, name) for name in ("text", "long", "max_length", "dtype", "tokens")}
    return {
        "schema": SCHEMA,
        "file": digest,
        "policy": job.policy,
        "references": list(job.references),
        "model": job.model,
        "rewards": [asdict(one) for one in job.rewards],
        "engine": job.engine.kind,
        "files": models,
        **how,
    }


def _stamp(name: str) -> list[list[Any]]:
    """Sizes and times of a folder's files; nothing for a name that is no folder."""
    folder = Path(name).expanduser()
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def _begin(work: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder, or find that it is this job's own. Raises InputError where it is another's."""
    record = work / "settings.json"
    text = json.dumps(settings, indent=1) + "\n"
    if record.exists():
        known = json.loads(record.read_text(encoding="utf-8"))
        others = [name for name in settings if known.get(name) != settings[name]]
        if others:
            raise InputError(
                f"{work}: was begun with another {', '.join(others)}; go on with that, or delete the folder"
            )
        return
    with replacing(record) as file:
        file.write(text.encode())


def _lines(job: GradeJob, done: int, total: int, tally: _Tally) -> Iterator[dict[str, Any]]:
    if done == total:
        # All lines were there, only the last rename was not; the models are not needed for it.
        return
    job.progress("loading models", done, total)
    with opening.contrast(_config(job), _server(job), tally.proof.update) as contrast:
        settings = GradeSettings(
            decode=contrast.decode,
            kinds=text_kinds if job.text == "chat" else plain_kinds,
            max_length=contrast.max_length,
            long=job.long,
            tokens=job.tokens,
        )
        coming = map(_preparing(job, contrast.tokenizer), islice(codec.read(job.file), done, None))
        job.progress("grading", done, total)
        for number, graded in enumerate(grade_prepared(coming, contrast, settings), start=done + 1):
            yield to_json(graded)
            job.progress("grading", number, total)


def _config(job: GradeJob) -> "ContrastConfig":
    from strop.engines.local.contrast import BASE, ContrastConfig

    references = job.references or (BASE,)
    return ContrastConfig(
        policy=job.policy,
        references=references,
        names=tuple(map(_name, references)),
        model=job.model,
        dtype=job.dtype,
        max_length=job.max_length,
        chat=job.text == "chat",
    )


def _server(job: GradeJob) -> "VllmSettings | None":
    return vllm_settings(job.engine) if job.engine.kind == "vllm" else None


def _preparing(job: GradeJob, tokenizer: Tokenizer) -> Callable[[Trajectory], Prepared]:
    if job.text == "chat":
        chat = Chat(tokenizer)
        return lambda trajectory: from_turns(as_turns(trajectory, chat))
    bos = tokenizer.encode(tokenizer.bos_token, special=True) if tokenizer.bos_token else []
    encode = partial(tokenizer.encode, special=True)
    return lambda trajectory: from_plain(trajectory, encode, bos, every=job.text == "plain-all")


def _result(job: GradeJob, tally: _Tally, resumed: int, seconds: float) -> dict[str, Any]:
    return {
        "graded": tally.graded,
        "ungraded": tally.reasons.total(),
        "reasons": dict(tally.reasons.most_common(5)),
        "steps": tally.steps,
        "unscored_steps": tally.unscored_steps,
        "tokens": tally.tokens,
        "resumed_at": resumed,
        "seconds": round(seconds, 3),
        "out": str(job.out),
        **({"vllm": tally.proof} if tally.proof else {}),
    }
