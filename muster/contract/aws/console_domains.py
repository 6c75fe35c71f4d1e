"""The addresses of the AWS consoles."""

from __future__ import annotations

CONSOLE_DOMAINS = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""The domain of each partition."""


def console_base(partition: str, region: str) -> str:
    """The beginning of every console address of a region; an unknown partition gets that of `aws`."""
    return f"https://{region}.{CONSOLE_DOMAINS.get(partition, CONSOLE_DOMAINS['aws'])}"
