"""Write the report of a run that is there: no training."""

from pathlib import Path

from strop.report.page import render
from strop.store.run import Run


def report(folder: Path) -> Path:
    """Write a run's report.html and return its path."""
    return render(Run.view(folder))
