"""Answers what stdin asks: one JSON document with all questions, and one with all answers on stdout."""

import contextlib
import importlib
import json
import sys

from tests.release.oracle.sagemaker_side.closed_process import close_process

questions = json.load(sys.stdin)
close_process()
with contextlib.redirect_stdout(sys.stderr):
    # Not before the process is closed: the SDK looks for a region and for credentials when it is imported.
    answers = importlib.import_module("tests.release.oracle.sagemaker_side.answers").answers(questions)
json.dump(answers, sys.stdout)
