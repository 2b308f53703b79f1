"""Serve a model and adapters the way OpenAI does."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from strop.app import building
from strop.app.guarding import GuardServing, guarding, read_rule
from strop.config.engine import EngineConfig
from strop.config.run import Device, Dtype
from strop.engines.opening import prepare
from strop.errors import InputError


def serve(
    *,
    model: str,
    adapters: Mapping[str, Path],
    host: str,
    port: int,
    api_key: str | None,
    ready: Callable[[str], None],
    policy: Path | None = None,
    reference: Path | None = None,
    guard: GuardServing | None = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    serving: EngineConfig | None = None,
) -> None:
    """Serve until interrupted; `ready(base_url)` is called once requests are answered.

    "policy" answers with the adapter `policy`, or the bare model; each adapter has its own name. `guard`
    grades with policy against `reference` (None: the bare model). `api_key` None: no key is asked for.
    `serving` says who answers behind the gateway (None: this process).
    Raises InputError for a port in use and a guard without a policy, ModelError for what cannot be loaded.
    """
    if guard is not None and policy is None:
        raise InputError("a guard needs --policy: a bare model grades every step 0")
    if guard is not None:
        # Before a model is loaded.
        read_rule(guard.file)
    prepare()
    from strop.engines.local.engine import LocalConfig

    config = LocalConfig(
        model=model,
        adapter=policy,
        reference=reference or ("base" if policy else None),
        dtype=dtype,
        device=device,
        host=host,
        port=port,
        api_key=api_key,
    )
    engine = building.opened(config, serving or EngineConfig())
    try:
        if guard is not None:
            engine.gateway.guard(guarding(guard, engine))
        for name, path in adapters.items():
            engine.serve_adapter(name, path)
        ready(engine.base_url)
        threading.Event().wait()
    finally:
        engine.close()
