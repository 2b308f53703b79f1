"""A stand-in for vLLM's server: the endpoints that strop uses, over a table of sixteen tokens.

Run in place of vLLM's Python (`install` writes such a Python). An adapter is a folder with weight.json, a
number that shifts the table. Files in the folder STUB_DIR tell it to misbehave, and are looked at on every
request: `die` (ends at the next completion, and removes the file), `die_loading`, `unhealthy`, `misname`,
`bare` (adapters change nothing), `broken` (does not start), `raw` (log-probs before temperature), `closed`
(no adapters taken), `hold` (completions of adapters wait until it is gone).
"""

import json
import math
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKENS = 16
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
        file = Path(body["lora_path"]) / "weight.json"
        if body["lora_name"] in ADAPTERS or not file.exists():
            return self._answer(400, {"error": {"message": "no such adapter, or loaded already"}})
        ADAPTERS[body["lora_name"]] = json.loads(file.read_text())
        return self._answer(200, {})

    def _complete(self, body: dict[str, Any]) -> None:
        name = body["model"]
        if name != "base" and name not in ADAPTERS:
            return self._answer(404, {"error": {"message": f"The model `{name}` does not exist."}})
        if once("die"):
            print("RuntimeError: out of memory", flush=True)
            os._exit(3)
        (Path(os.environ["STUB_DIR"]) / "asked").touch()
        while told("hold") and name != "base":
            time.sleep(0.01)
        weight = 0.0 if told("bare") else ADAPTERS.get(name, 0.0)
        values = logprobs(body["prompt"], weight, body["temperature"])
        best = sorted(range(TOKENS), key=lambda token: -values[token])[: body["logprobs"] or 1]
        choice = {
            "finish_reason": "length",
            "token_ids": [best[0]],
            "logprobs": {
                "tokens": [f"token_id:{best[0]}"],
                "token_logprobs": [values[best[0]]],
                "top_logprobs": [{f"token_id:{token}": values[token] for token in best}],
            },
        }
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
