"""A stand-in for vLLM's server: the endpoints that strop uses, over a table of STUB_TOKENS tokens, else 16.

Run in place of vLLM's Python (`install` writes such a Python). An adapter is a folder with weight.json, a
number that shifts the table; of a real adapter's folder the number is made of its weights. Files in the
folder STUB_DIR tell it to misbehave, and are looked at on every request: `die` (ends at the next completion,
and removes the file), `die_loading`, `unhealthy`, `misname`, `bare` (adapters change nothing), `broken` (does
not start), `raw` (log-probs before temperature), `closed` (no adapters taken), `hold` (completions of
adapters wait until it is gone), `poison` (ends at each prompt with token 13), `logits` (says logits of
prompts).
"""

import json
import math
import os
import sys
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKENS = int(os.environ.get("STUB_TOKENS", "16"))
ADAPTERS: dict[str, float] = {}


def install(folder: Path) -> Path:
    """Write a "Python" into `folder` that has vLLM, as far as anybody asks it."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\n{Path(__file__).read_text(encoding='utf-8')}")
    python.chmod(0o755)
    return python


def told(name: str) -> bool:
    return (Path(os.environ["STUB_DIR"]) / name).exists()


def once(name: str) -> bool:
    file = Path(os.environ["STUB_DIR"]) / name
    there = file.exists()
    file.unlink(missing_ok=True)
    return there


def logprobs(prompt: list[int], weight: float, temperature: float) -> list[float]:
    """log softmax of cos(token + last id) + weight x cos(3 token), at the temperature."""
    logits = [math.cos(t + prompt[-1]) + weight * math.cos(3 * t) for t in range(TOKENS)]
    scale = 1.0 if told("raw") else temperature or 1.0
    total = math.log(sum(math.exp(one / scale) for one in logits))
    return [one / scale - total for one in logits]


def prompt_logprobs(prompt: list[int], weight: float, others: int) -> list[dict[str, Any] | None]:
    """As vLLM lists them: of each token but the first, and of the likeliest others."""
    places: list[dict[str, Any] | None] = [None]
    for at in range(1, len(prompt)):
        values = logprobs(prompt[:at], weight, 1.0)
        if told("logits"):
            values = [value + 5.0 for value in values]
        best = sorted(range(TOKENS), key=lambda token: -values[token])[:others]
        places.append({str(token): {"logprob": values[token]} for token in {*best, prompt[at]}})
    return places


def weight_of(folder: Path) -> float | None:
    """The number of an adapter's folder, if it is one."""
    if (folder / "weight.json").exists():
        return float(json.loads((folder / "weight.json").read_text()))
    real = folder / "adapter_model.safetensors"
    if not real.exists():
        return None
    written = real.read_bytes()
    header = 8 + int.from_bytes(written[:8], "little")
    return zlib.crc32(written) % 1000 / 250 if any(written[header:]) else 0.0


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            return self._answer(500 if told("unhealthy") else 200, {})
        models = [{"id": "base", "parent": None, "max_model_len": 64}]
        return self._answer(200, {"data": models + [{"id": n, "parent": "base"} for n in ADAPTERS]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/v1/completions":
            return self._complete(body)
        if told("closed"):
            return self._answer(404, {"detail": "Not Found"})
        if self.path == "/v1/unload_lora_adapter":
            there = ADAPTERS.pop(body["lora_name"], None)
            return self._answer(404 if there is None else 200, {})
        return self._load(body)

    def _load(self, body: dict[str, Any]) -> None:
        if "lora_name" not in body:
            return self._answer(400, {"error": {"message": "lora_name is missing"}})
        if once("die_loading"):
            os._exit(4)
        weight = weight_of(Path(body["lora_path"]))
        if body["lora_name"] in ADAPTERS or weight is None:
            return self._answer(400, {"error": {"message": "no such adapter, or loaded already"}})
        ADAPTERS[body["lora_name"]] = weight
        return self._answer(200, {})

    def _complete(self, body: dict[str, Any]) -> None:
        name = body["model"]
        if name != "base" and name not in ADAPTERS:
            return self._answer(404, {"error": {"message": f"The model `{name}` does not exist."}})
        if once("die") or (told("poison") and 13 in body["prompt"]):
            print("RuntimeError: out of memory", flush=True)
            os._exit(3)
        (Path(os.environ["STUB_DIR"]) / "asked").touch()
        while told("hold") and name != "base":
            time.sleep(0.01)
        weight = 0.0 if told("bare") else ADAPTERS.get(name, 0.0)
        values = logprobs(body["prompt"], weight, body["temperature"])
        best = sorted(range(TOKENS), key=lambda token: -values[token])[: body.get("logprobs") or 1]
        choice: dict[str, Any] = {
            "finish_reason": "length",
            "token_ids": [best[0]],
            "logprobs": {
                "tokens": [f"token_id:{best[0]}"],
                "token_logprobs": [values[best[0]]],
                "top_logprobs": [{f"token_id:{token}": values[token] for token in best}],
            },
        }
        if "prompt_logprobs" in body:
            choice["prompt_logprobs"] = prompt_logprobs(body["prompt"], weight, body["prompt_logprobs"])
        said = "base" if told("misname") else name
        return self._answer(200, {"model": said, "choices": [choice], "usage": {}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        return None


def main() -> None:
    if "-c" in sys.argv:
        return
    # Whole, as soon as it is there.
    (Path(os.environ["STUB_DIR"]) / "pid.new").write_text(str(os.getpid()))
    os.replace(Path(os.environ["STUB_DIR"]) / "pid.new", Path(os.environ["STUB_DIR"]) / "pid")
    if told("broken"):
        print("ValueError: no such argument", flush=True)
        sys.exit(2)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
