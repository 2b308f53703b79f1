"""vLLM's endpoints beside sampling: whether it lives, what it serves, which adapters it holds."""

from collections.abc import Sequence
from typing import Any

import httpx

from strop.engines.vllm.completion import SERVER_ERROR, request, sampled
from strop.engines.vllm.prompt_scores import listed, scoring_request
from strop.errors import EngineError, ServerLost, in_one_line
from strop.inference.sampling import SamplingParams

TOP = 20
LOAD_S = 300.0
HEALTH_S = 2.0


class Control:
    """Synchronous, any thread. A server that does not answer raises ServerLost."""

    def __init__(self) -> None:
        self._http = httpx.Client(trust_env=False, timeout=LOAD_S)

    def health(self, url: str) -> int | None:
        """Status of /health; None where nothing answers in time."""
        try:
            return self._http.get(f"{url}/health", timeout=HEALTH_S).status_code
        except httpx.TransportError:
            return None

    def models(self, url: str) -> list[dict[str, Any]]:
        """What GET /v1/models lists."""
        answer = self._ask("GET", f"{url}/v1/models")
        if answer.status_code != httpx.codes.OK:
            raise EngineError(f"{url}/v1/models answers {answer.status_code}: is that a vLLM server?")
        listed: list[dict[str, Any]] = answer.json()["data"]
        return listed

    def load(self, url: str, name: str, folder: str) -> None:
        """Load an adapter from a folder that the server can read. Raises EngineError where it refuses."""
        body = {"lora_name": name, "lora_path": folder}
        answer = self._ask("POST", f"{url}/v1/load_lora_adapter", body)
        if answer.status_code != httpx.codes.OK:
            raise EngineError(f"vLLM refused to load {name}: {_said(answer)}")

    def unload(self, url: str, name: str) -> None:
        """Forget an adapter; one that is not there is no error."""
        answer = self._ask("POST", f"{url}/v1/unload_lora_adapter", {"lora_name": name})
        if answer.status_code not in (httpx.codes.OK, httpx.codes.NOT_FOUND):
            raise EngineError(f"vLLM refused to unload {name}: {_said(answer)}")

    def takes_adapters(self, url: str) -> bool:
        """Whether adapters may be loaded while it runs: without that, vLLM does not have the endpoint."""
        answer = self._ask("POST", f"{url}/v1/load_lora_adapter", {})
        return answer.status_code != httpx.codes.NOT_FOUND

    def top(self, url: str, model: str, prompt: Sequence[int], temperature: float) -> dict[int, float]:
        """The most likely tokens behind a prompt, with their log-probs. Raises EngineError for no answer."""
        params = SamplingParams(max_tokens=1, temperature=temperature, top_logprobs=TOP)
        answer = self._probe(url, model, request(model, prompt, params, frozenset(), 1))
        return dict(sampled(answer, model, model, 0, TOP).top[0])

    def prompt_tops(self, url: str, model: str, prompt: Sequence[int]) -> list[dict[int, float]]:
        """The most likely tokens at each place of a prompt but the first, as it says of prompts.

        Raises EngineError for no answer.
        """
        return listed(self._probe(url, model, scoring_request(model, prompt, TOP)), model, model, len(prompt))

    def close(self) -> None:
        self._http.close()

    def _probe(self, url: str, model: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._ask("POST", f"{url}/v1/completions", body)
        if answer.status_code >= SERVER_ERROR:
            raise ServerLost(f"vLLM failed while it was probed: {_said(answer)}")
        if answer.status_code != httpx.codes.OK:
            raise EngineError(f"vLLM did not answer a probe of {model}: {_said(answer)}")
        found: dict[str, Any] = answer.json()
        return found

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            return self._http.request(method, url, json=body)
        except httpx.TransportError as error:
            raise ServerLost(f"vLLM at {url} does not answer: {in_one_line(error)}") from error


def _said(answer: httpx.Response) -> str:
    """What an error answer says, on one line."""
    try:
        body = answer.json()
        said = body.get("error", body)
        return f"{answer.status_code}: {in_one_line(Exception(str(said.get('message', said))))}"
    except (ValueError, AttributeError):
        return f"{answer.status_code}: {in_one_line(Exception(answer.text))}"
