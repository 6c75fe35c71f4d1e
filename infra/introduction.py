"""The words at the head of the dashboard: where things are, and how to start a run."""

from __future__ import annotations

from infra.console import Console

_TEXT = """# {stack}
[Runs]({runs}) are executions of the state machine: the output of one has its verdict, its figures and links; the \
cause of one that failed says why and where to look. What they leave is in the [bucket]({bucket}). \
[Logs of the functions]({logs}) · [dead letters]({queues}).

**To start a run**, open the state machine, choose *Start execution*, and give a spec as the input. This one runs as \
it is. *New execution* on the page of an earlier run begins with the input of that run.

```json
{example}
```"""


def introduction(*, console: Console, machine: str, bucket: str, stack: str, example: str) -> str:
    """Markdown."""
    return _TEXT.format(
        stack=stack,
        runs=console.state_machine(machine),
        bucket=console.bucket(bucket),
        logs=console.log_groups(stack),
        queues=console.queues(),
        example=example,
    )
