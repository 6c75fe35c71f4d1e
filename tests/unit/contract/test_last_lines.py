"""The last lines of a failed attempt: which are read, what is hidden in them, and the place that they name."""

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_place import Frame, user_place, written_place
from muster.contract.run.last_lines import ATTEMPTS_READ, LINE_MAX, LINES, is_explained_by_log, kept_lines, to_read

AT = "2026-11-22T10:00:00.000Z"


def failed(attempt: int, failure_class: FailureClass = FailureClass.USER_CODE, status: str = "Failed") -> Attempt:
    return Attempt(
        attempt=attempt,
        job=f"job-a{attempt}",
        status=status,
        ended_at=AT,  # type: ignore[arg-type]
        failure_class=failure_class,
    )


# --- which ------------------------------------------------------------------------------------------


def test_the_latest_failure_of_every_replica_comes_before_earlier_ones() -> None:
    chosen = to_read({2: [failed(1)], 0: [failed(1), failed(2)]})
    assert [(one.rank, one.attempt) for one in chosen] == [(0, 2), (2, 1), (0, 1)]
    # Of many failures a few are read, and none again.
    assert len(to_read({rank: [failed(1)] for rank in range(1_000)})) == ATTEMPTS_READ
    assert to_read({0: [failed(1).model_copy(update={"last_lines": ("x",)})]}) == []


def test_only_the_log_of_a_program_that_may_say_why_is_read() -> None:
    read = [FailureClass.USER_CODE, FailureClass.INFRASTRUCTURE, FailureClass.INVALID_REQUEST]
    assert [cause for cause in read if not is_explained_by_log(failed(1, cause))] == []
    others = [
        failed(1, FailureClass.INVALID_REQUEST).model_copy(update={"secondary": "NotCreated"}),
        failed(1, FailureClass.CAPACITY),
        failed(1, FailureClass.STOPPED_BY_USER, "Stopped"),
        failed(1).model_copy(update={"ended_at": None}),
    ]
    assert [attempt for attempt in others if is_explained_by_log(attempt)] == []


# --- what is kept -----------------------------------------------------------------------------------


def test_the_last_lines_are_kept_each_cut_and_without_what_steers_a_terminal() -> None:
    written = [*(f"line {number}" for number in range(100)), "\x1b[31mred\x1b[0m \x07", "x" * 9_999, "10 %\r20 %"]
    kept = kept_lines(written, {})
    assert len(kept) == LINES
    assert kept[-4:] == ("red \\x07", "x" * (LINE_MAX - 1) + "…", "10 %", "20 %")


def test_the_values_of_the_environment_are_hidden_also_where_a_line_is_cut() -> None:
    secret = "hf_0123456789"
    environment = {"HF_TOKEN": secret, "KEY": "-----BEGIN\nabcdefgh", "LEVEL": "info", "LONG": f"{secret}-more"}
    lines = [f"POST ?t={secret}&x", "y" * (LINE_MAX - 8) + secret, "abcdefgh", "info", f"{secret}-more"]
    kept = kept_lines(lines, environment)
    assert kept[0] == "POST ?t=(HF_TOKEN, not shown)&x"
    assert kept[2:] == ("(KEY, not shown)", "info", "(LONG, not shown)")
    assert not any(secret[:6] in line for line in kept)


def test_a_value_is_hidden_in_the_forms_in_which_programs_write_it() -> None:
    for secret in ('p"a\\ss\u00e9 wörd/+', "tab\tin the value", "  spaces around  "):
        raw = secret.strip().encode()
        forms = [
            *(secret, repr({"PASSWORD": secret}), json.dumps({"PASSWORD": secret})),
            *(f"GET /?password={quote(raw, safe='')}", f"GET /?password={quote_plus(raw)}"),
            *(b64encode(raw).decode(), urlsafe_b64encode(raw).decode()),
        ]
        kept = kept_lines(forms, {"PASSWORD": secret})
        assert [line for line in kept if "(PASSWORD, not shown)" not in line] == []


# --- the place --------------------------------------------------------------------------------------

TRACEBACK = [
    "step 12 loss=0.5",
    "Traceback (most recent call last):",
    '  File "/opt/ml/muster/package.zip/muster/replica/entry/trainer.py", line 55, in call_trainer',
    "    trainer(context, **document.kwargs)",
    '  File "/opt/ml/muster/source/vision/training.py", line 41, in train',
    "    batch = next(batches)",
    '  File "/usr/lib/python3.11/site-packages/torch/utils/data.py", line 633, in __next__',
    "    data = self._next_data()",
    "ValueError: no data for rank 2",
    "muster ERROR train failed",
]


def test_the_place_is_the_user_s_innermost_line_of_the_last_traceback_and_the_error_follows() -> None:
    assert written_place(TRACEBACK) == "vision/training.py:41: ValueError: no data for rank 2"
    later = [line.replace("41", "77").replace("ValueError", "KeyError") for line in TRACEBACK]
    assert written_place(TRACEBACK + later) == "vision/training.py:77: KeyError: no data for rank 2"
    # One that is cut off names the place alone.
    assert written_place(TRACEBACK[:6]) == "vision/training.py:41"
    # Lines of other processes in between are left out.
    mixed = [line for one in TRACEBACK for line in (f"[2.1] {one}", "[2.0] Traceback is my favourite word")]
    assert written_place(mixed) == "vision/training.py:41: ValueError: no data for rank 2"
    assert written_place(["Killed", "step 1"]) is written_place([]) is None


def test_a_file_is_named_below_the_folder_of_the_user_s_code_and_a_library_is_no_place() -> None:
    frames = [Frame("/x/site-packages/muster/replica/entry/trainer.py", 5), Frame("/x/site-packages/team/train.py", 9)]
    assert user_place([*frames, Frame("/x/site-packages/torch/nn.py", 100)]) == "train.py:9"
    for file in ("<frozen importlib._bootstrap>", "/usr/lib/python3.11/json/decoder.py"):
        assert user_place([Frame(file, 1)]) is None, file
    assert user_place([Frame("/home/me/project/a/b.py", 3)], "/home/me/project") == "a/b.py:3"
