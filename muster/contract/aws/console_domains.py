"""Where the AWS consoles are."""

from __future__ import annotations

CONSOLE_DOMAINS = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
"""The domain of each partition."""


def console_base(partition: str, region: str) -> str:
    """What the addresses of a region's consoles begin with; those of an unknown partition like AWS's own."""
    return f"https://{region}.{CONSOLE_DOMAINS.get(partition, CONSOLE_DOMAINS['aws'])}"
