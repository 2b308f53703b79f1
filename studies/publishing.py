"""What every study's command shares: its options, and how its pages and figures are rewritten."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.trajectory.atomic import replacing

FOLDER = Path("docs/studies")
ROOT = Path(__file__).parents[1]


def study_parser(description: str | None) -> argparse.ArgumentParser:
    """The options of a study: its docstring as help, and `--json`. A study adds its own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def publish(files: Mapping[str, str], found: Mapping[str, Any], *, as_json: bool, root: Path = ROOT) -> None:
    """Replace the study's `files` (text by name in docs/studies) and print `found`, or what was written.

    Each file is written aside and renamed; `as_json` prints `found` as one object on one line. Raises
    StropError where the disk refuses.
    """
    for name, text in files.items():
        with replacing(root / FOLDER / name) as file:
            file.write(text.encode())
    written = f"wrote {', '.join(str(FOLDER / name) for name in files)}"
    print(json.dumps(found) if as_json else written)
