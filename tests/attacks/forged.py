"""What a replica writes, or makes others believe: notices, logs, manifests, commits."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from muster.client.logs.log_lines import LogEvent, LogQuery
from muster.contract.errors import DocumentError
from muster.contract.run.commit import Commit, parse_commit
from muster.contract.run.model import ModelManifest
from muster.contract.run.notices import Notice
from muster.control.runtime.clock import TimeBudget
from muster.options.hyperpod.client.cluster_logs import read_pod_line
from muster.options.hyperpod.contract.pod_log_lines import STREAMS, line_head, parse_line
from muster.options.hyperpod.control.heeding import heed_notices
from tests.attacks.attempts import Tries, Try
from tests.memory.harness import CLUSTER_SPEC, ControlHarness

STORED = Path(__file__).parents[1] / "unit" / "contract" / "stored"


def notices() -> Tries:
    """Of a victim's running job: a forged notice causes a look, and changes nothing."""
    runs = ("victim", "victim-r1", "*", "..", "victim/../x", "v" * 200, "")
    kinds, ranks, attempts = (
        ("start", "end", "missing", "stop", ""),
        ("0", "1", "-1", "00", "99999"),
        ("", "-a1", "-a0"),
    )
    keys = [
        f"notices/{run}/{kind}-r{rank}{attempt}-x.json"
        for run, kind, rank, attempt in product(runs, kinds, ranks, attempts)
    ]
    with ControlHarness(clusters=True).installed() as harness:
        harness.plan("victim", **CLUSTER_SPEC)
        harness.arm(run="victim")
        before = harness.record(run="victim").current
        for key in keys:
            notice = Notice.parse(key)
            if notice is not None:
                harness.plane.store.s3.put_object(
                    Bucket="bucket", Key=key, Body=b'{"exit_code": 0, "reason": "forged"}'
                )
                heed_notices(harness.plane, [notice], TimeBudget.of(280))
            record = harness.record(run="victim")
            ended = record.decision is not None or record.current.attempt != before.attempt or record.current.reason
            yield Try(f"notice {key}", bool(ended))


def crowds() -> Tries:
    """Many at a time about a job that runs: the function waits because of one of them, and for seconds."""
    keys = [f"notices/victim/{kind}-{index}.json" for index in range(30) for kind in ("missing-r0", "end-r0-a1")]
    with ControlHarness(clusters=True).installed() as harness:
        harness.plan("victim", **CLUSTER_SPEC)
        harness.arm(run="victim")
        job, clock = harness.job(run="victim"), harness.cloud.clock
        harness.cluster.run(job)
        harness.cluster.add_pod(job, {"containerStatuses": [{"state": {"running": {}}}]})
        taken: list[tuple[str, float]] = []

        def look(*keys: str) -> None:
            for key in keys:
                notice, began = Notice.parse(key), clock.monotonic()
                assert notice is not None
                heed_notices(harness.plane, [notice], TimeBudget.of(280))
                taken.append((key, clock.monotonic() - began))

        clock.after(0.5, lambda: look(*keys[:-1]))
        look(keys[-1])
    *others, first = taken
    yield Try(f"{first[0]} keeps the function busy for {first[1]:.0f} s", first[1] > 10)
    for key, seconds in others:
        yield Try(f"{key} keeps the function busy for {seconds:.0f} s beside another", seconds > 0)


def logs() -> Tries:
    """Lines of another run's job: in a stream that only looks like its own, or behind a head that a program wrote."""
    jobs = [f"muster-victim-r{rank}-a{attempt}" for rank, attempt in product((0, 3, 10), (1, 2))]
    query = LogQuery("muster", "victim")
    for job, end in product(
        jobs, ("", "/", "/x", "/algo", "x/algo-1-1", "-r0-a1/algo-1-1", "/../algo-1-1", "\n/algo-1-1")
    ):
        found = list(query.lines([LogEvent("1", 1, f"{job}{end}", "forged")]))
        yield Try(f"stream {job}{end}", bool(found))
    for job, writer in product(
        jobs, ("muster-attacker-r0-a1-pod-0", "", "x", "muster-victim", "muster-victim-r0", "pod-0")
    ):
        line = f"{line_head(job, 0)}forged"
        message = json.dumps({"log": line, "kubernetes": {"pod_name": writer or "none"}})
        yield Try(f"line of {writer!r} as {job}", parse_line(message) is not None)
        other = f"{line_head('muster-attacker-r0-a1', 0)}{line}"
        found = list(query.lines([read_pod_line(LogEvent("1", 1, f"{STREAMS}/i-1", other))]))
        yield Try(f"a head of {job} behind the own one", bool(found))
    stream = f"{jobs[0]}/algo-1-1700000000"
    yield Try("a line of its own", bool(list(query.lines([LogEvent("1", 1, stream, "x")]))), is_own=True)


_FILE = {"name": "a", "bytes": 1, "sha256": "c" * 64}
_NAMES = (
    *(
        "../x",
        "/etc/passwd",
        "a/../../x",
        "a//b",
        "",
        ".",
        "..",
        "a\\b",
        "C:x",
        "a\x00b",
        "a\nb",
        "a/",
        "./a",
        "x" * 600,
    ),
    *("\x1b[31mx", "a/./b", "~/../x", "file:x", "\u202ex"),
)


def manifests() -> Tries:
    """Lists of a model's files, which clients write below a folder, and control planes add up."""
    whole = json.loads((STORED / "ModelManifest-1.json").read_text(encoding="utf-8"))
    lists: dict[str, list[dict[str, Any]]] = {
        **{f"name {name!r}": [{**_FILE, "name": name}] for name in _NAMES},
        **{f"{size} bytes": [{**_FILE, "bytes": size}] for size in (-1, 10**30, 2**63, 1.5, "1", True)},
        **{f"sha256 {text!r}": [{**_FILE, "sha256": text}] for text in ("", "c" * 63, "C" * 64, "../" * 20, 7)},
        "twice": [_FILE, _FILE],
        "twice, other bytes": [_FILE, {**_FILE, "bytes": 2}],
        "a and a/b": [_FILE, {**_FILE, "name": "a/b"}],
        "a/b/c and a/b": [{**_FILE, "name": "a/b/c"}, {**_FILE, "name": "a/b"}],
        "none": [],
        "too many": [{**_FILE, "name": str(index)} for index in range(10_001)],
    }
    documents = {what: {**whole, "files": files} for what, files in lists.items()}
    for field, value in (("round", -1), ("round", 10**30), ("rank", -1), ("run", "r" * 100), ("checksum", "x" * 100)):
        documents[f"{field} {value}"[:40]] = {**whole, field: value}
    for what, document in documents.items():
        yield Try(f"manifest: {what}", _reads(ModelManifest, json.dumps(document)))
    for text in ("", "[]", "null", "{", '{"files": NaN}', "[" * 100_000, '{"a":' * 50_000):
        yield Try(f"manifest: {text[:20]!r}", _reads(ModelManifest, text))
    yield Try("manifest: an own one", _reads(ModelManifest, json.dumps(whole)), is_own=True)


def commits() -> Tries:
    """Commits of a round, which a page, `status` and replicas read."""
    whole = json.loads((STORED / "Commit-1.json").read_text(encoding="utf-8"))
    member = whole["members"][0]
    wrong = {
        **{f"round {value!r}": {"round": value} for value in (3, 0, -1, 10**30, "2", None, 2.5)},
        **{f"count {value!r}": {"count": value} for value in (-1, "3", 1.5, None)},
        **{f"members {value!r}": {"members": value} for value in ("x", None, {}, [1], [None])},
        **{
            f"member {name} {value!r}": {"members": [{**member, name: value}]}
            for name, values in {
                "rank": (-1, "0", None, 0.5),
                "attempt": (0, -1, "1"),
                "weight": (-1.0, "x", None, "NaN"),
                "metrics": ({"loss": "x"}, {"x" * 200: 1.0}, [], {"a": None}),
                "checksum": (7, None, []),
            }.items()
            for value in values
        },
        **{f"committed at {value!r}"[:60]: {"committed_at": value} for value in (7, None, [], {})},
    }
    for what, change in wrong.items():
        yield Try(f"commit: {what}", _commits(json.dumps({**whole, **change}).encode()))
    for name in ("00000003.json", "2.json", "00000002.json.json", "../00000002.json", "finding-1.json", "x"):
        yield Try(f"commit as {name}", name != "../00000002.json" and _commits(json.dumps(whole).encode(), name))
    for text in (b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"round": NaN}'):
        yield Try(f"commit: {text[:20]!r}", _commits(text))
    yield Try("commit: an own one", _commits(json.dumps(whole).encode()), is_own=True)


def _commits(body: bytes, name: str = "00000002.json") -> bool:
    try:
        return isinstance(parse_commit(body, f"s3://bucket/rendezvous/first/commits/{name}"), Commit)
    except DocumentError:
        return False


def _reads(kind: type[ModelManifest], text: str) -> bool:
    try:
        kind.from_json(text.encode(), "manifest")
    except DocumentError:
        return False
    return True
