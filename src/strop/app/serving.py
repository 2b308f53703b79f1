"""Serve a model and adapters the way OpenAI does."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from strop.config.run import Device, Dtype
from strop.engines.opening import local, prepare


def serve(
    *,
    model: str,
    adapters: Mapping[str, Path],
    host: str,
    port: int,
    api_key: str | None,
    ready: Callable[[str], None],
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Serve until interrupted; `ready(base_url)` is called once requests are answered.

    The bare model answers to "policy", each adapter to its own name. `api_key` None: no key is asked
    for. Raises InputError for a port in use, ModelError for what cannot be loaded.
    """
    prepare()
    from strop.engines.local.engine import LocalConfig

    config = LocalConfig(model=model, dtype=dtype, device=device, host=host, port=port, api_key=api_key)
    engine = local(config)
    try:
        for name, path in adapters.items():
            engine.serve_adapter(name, path)
        ready(engine.base_url)
        threading.Event().wait()
    finally:
        engine.close()
