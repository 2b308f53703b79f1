"""The composition root: whole runs from a config. Builds engine, judge, agent and store; holds no maths."""

from strop.app.offline import grade, judge_file, report
from strop.app.serving import serve
from strop.app.whole_run import DemoOptions, demo, train

__all__ = ["DemoOptions", "demo", "grade", "judge_file", "report", "serve", "train"]
