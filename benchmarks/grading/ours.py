"""Our side: the code behind `strop grade`, in the peer's plain format and on the same trajectories.

A line asks for grades: of the first trajectories, as many as it says, or of all.
"""

import json
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.sides.memory import peak_bytes
from strop.engines.opening import prepare
from strop.grader.grade import GradeSettings, grade_prepared
from strop.grader.plain import plain_kinds
from strop.grader.prepare import from_plain
from strop.trajectory import codec


def main() -> None:
    job = json.loads(sys.stdin.readline())
    prepare()
    from strop.engines.local.contrast import ContrastConfig, LocalContrast

    contrast = LocalContrast(
        ContrastConfig(
            policy=job["adapter"],
            references=(job["reference"],),
            model=job["model"],
            dtype=job["dtype"],
            max_length=job["length"],
            chat=False,
        )
    )
    tokenizer = contrast.tokenizer
    settings = GradeSettings(
        decode=contrast.decode, kinds=plain_kinds, max_length=contrast.max_length, long="last"
    )
    bos, encode = (
        tokenizer.encode(tokenizer.bos_token, special=True),
        partial(tokenizer.encode, special=True),
    )
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        count = int(line) if line.strip() else None
        began, cpu = time.perf_counter(), time.process_time()
        coming = (from_plain(t, encode, bos) for t in islice(codec.read(Path(job["file"])), count))
        grades = [[step.mean for step in one.steps] for one in grade_prepared(coming, contrast, settings)]
        answer = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu,
            "peak": peak_bytes(),
            "grades": grades,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
