"""Generated pages are those that the code would generate now."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_run_file_page_is_up_to_date() -> None:
    made = subprocess.run([sys.executable, "scripts/make_reference.py", "--check"], cwd=ROOT, check=False)
    assert made.returncode == 0, "run python scripts/make_reference.py"
