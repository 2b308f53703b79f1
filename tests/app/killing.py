"""A process that starts runs and kills them with SIGKILL: by the clock, or at the n-th thing done to a file.

Everything heavy is loaded once; each run is a fork of this process. Reads a JSON order a line and answers
each with a line; see `order`.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

ENDED, FAILED = 0, 3
WRITING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
PATIENCE_S = 120.0


def order(wanted: dict[str, Any]) -> dict[str, Any]:
    """One life of the run `wanted["run_toml"]`: resumed where it was begun.

    `after_s` seconds from the fork, or before the `at_event`-th event, it is killed; neither: it may end.
    Gives how it ended, "killed" or "ended", its seconds, and the events counted where it ended.
    """
    began = time.perf_counter()
    child = os.fork()
    if not child:
        os._exit(live(Path(wanted["run_toml"]), wanted.get("at_event")))
    if wanted.get("after_s") is not None:
        time.sleep(wanted["after_s"])
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - began
    if os.WIFSIGNALED(status):
        return {"how": "killed", "seconds": seconds}
    if os.WEXITSTATUS(status) != ENDED:
        return {"how": "failed", "seconds": seconds}
    counted = Path(wanted["run_toml"]).with_name("events")
    return {"how": "ended", "seconds": seconds, "events": int(counted.read_text())}


def live(run_toml: Path, at_event: int | None) -> int:
    """The child: a whole run, or what is left of one."""
    from strop.app.whole_run import train
    from strop.config import load

    os.environ["STROP_CACHE"] = str(run_toml.parent / "cache")
    count = watch(str(run_toml.parent), at_event)
    try:
        config = load(run_toml)
        train(config, resume=(config.run.directory / "run.toml").exists())
    except Exception:  # noqa: BLE001 - the boundary of the process: the parent is told
        import traceback

        traceback.print_exc()
        return FAILED
    run_toml.with_name("events").write_text(str(count[0]))
    return ENDED


def watch(folder: str, at_event: int | None) -> list[int]:
    """Counts what is done to files below `folder`, and kills this process before the `at_event`-th of it."""
    count = [0]

    def heard(name: str, arguments: tuple[Any, ...]) -> None:
        opened = name == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (opened or name in WRITING) or not str(arguments[0]).startswith(folder):
            return
        count[0] += 1
        if count[0] == at_event:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
    return count


def main() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from strop.engines.opening import prepare

    prepare()
    import torch

    import strop.app.whole_run
    import strop.engines.local.engine
    from strop.engines.local.sampler import LocalSampler

    assert strop.app.whole_run
    torch.set_num_threads(1)
    # A machine that is busy must not make an agent late: that is the one thing that costs repeatability.
    LocalSampler.__init__.__kwdefaults__["patience"] = PATIENCE_S
    for line in sys.stdin:
        answer.write(json.dumps(order(json.loads(line))) + "\n")
        answer.flush()


if __name__ == "__main__":
    main()
