"""Whether the judge of a run file can be asked: its key, and with leave its endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from strop.config import JudgeConfig
from strop.errors import in_one_line

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFound:
    """The judge's model, whether its key is set, what its endpoint said, and what stands in the way."""

    model: str
    key_set: bool
    said: str
    problems: tuple[str, ...] = ()


def look_at(judge: JudgeConfig, environ: Mapping[str, str], *, network: bool) -> JudgeFound | None:
    """An endpoint's state, its list of models asked for once where `network`; None for the embedded judge."""
    if judge.base_url is None or judge.model is None:
        return None
    key = environ.get(judge.api_key_env)
    problems = (
        [] if key else [f"[judge] api_key_env: {judge.api_key_env} is not set; set it to the judge's key"]
    )
    said = "not asked: --network asks it"
    if network:
        said, problem = _asked(judge.base_url, key or "none")
        problems += [problem] if problem else []
    return JudgeFound(model=judge.model, key_set=bool(key), said=said, problems=tuple(problems))


def _asked(base_url: str, key: str) -> tuple[str, str]:
    """What it said, and what is wrong with that, "" for nothing. An endpoint need not list its models."""
    url = f"{base_url.rstrip('/')}/models"
    try:
        status = httpx.get(url, headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_S).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = in_one_line(error)
        return "no answer", f"[judge] base_url: {base_url} does not answer ({why}); check address and network"
    if status in (401, 403):
        return f"refuses the key ({status})", f"[judge] base_url: {base_url} refuses the key ({status})"
    return f"answers ({status})", ""
