"""The rare transitions that an exploration must reach: a schedule in which nothing rare happens shows nothing.

What is logged is counted by the names of events. A star: a thousand schedules reach it.
"""

_LINES = """
logged: began
logged: committed
* logged: contribution-was-there
* logged: damaged-shard
* logged: damaged-snapshot
* logged: excluded
* logged: fell-forward
logged: joined
logged: late-verdict
* logged: left-out
logged: not-swept
logged: options
logged: seated
logged: snapshot
* logged: swept
* logged: take-over
logged: void
fault: 503
fault: 409
fault: answer lost
fault: late
fault: broken body
fault: damaged
a create meets an object (412)
a missing object is hidden (403)
* an object appears after a 403
damaged in transit: contributions
damaged in transit: reduced
damaged in transit: snapshots
damaged in the bucket: contributions
damaged in the bucket: reduced
damaged in the bucket: snapshots
late effect: claims
late effect: commits
late effect: contributions
late effect: reduced
late effect: verdicts
late effect: snapshots
late effect: manifests
* late effect finds an object
* late effect of a process that has ended
late effect after a successor took the rank
an amendment is created
* a round is gathered
a round is gathered and amended
a round is void
a bit of a state is flipped
a step is a thousand times as large
an outlier is excluded
a missing rank of a cluster is reported
* a round is committed without an expected rank
a round is committed without a rank that has finished
killed
stalled
told to stop
cut off from S3
* rerun after a failure
a rank is rerun while its round is being committed
a phase is given by a process that ends
a phase is resumed
logged: given-early
logged: left
logged: phase-resumed
* one process of several is killed
a contribution's parts stay without its own object
ended: well
* ended: fenced
ended: stopped
* ended: S3 unavailable
ended: diverged
* ended: no quorum in time
ended: no quorum possible
ended: damaged
ended: other bits
torchft: began
torchft: joined after the first round
torchft: left out
late effect: torchft
logged: replayed
a seat is closed while its replica trains
a member leaves with its contribution
a replica joins
a round is committed without its share
a replica comes after all others are gone
a place is parted from the run's bucket
a place is late
logged: late-place
""".strip().split("\n")
REACHED = tuple(line.removeprefix("* ") for line in _LINES)
COMMON = tuple(line.removeprefix("* ") for line in _LINES if line.startswith("* "))
