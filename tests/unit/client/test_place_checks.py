"""What `muster verify` says of an outpost that is not as the stack needs it."""

from muster.options.places.client.checks import outpost_problems
from muster.options.places.contract.outposts import Place, outpost

ONE = outpost("Muster", "muster", "aws", Place(name="oregon", region="us-west-2", account="123456789012"))
KNOWN = {"Home": "arn:home", "JobPrefix": "muster", "Version": "0.2.0"}
RIGHT = {**KNOWN, "ExternalId": ONE.external_id, "BucketName": ONE.bucket}


def test_what_differs_at_an_outpost_is_named_with_both_sides() -> None:
    def said(**outputs: str) -> list[str]:
        return [words for words, is_so in outpost_problems({**RIGHT, **outputs}, ONE, KNOWN).items() if is_so]

    assert said() == []
    assert said(ExternalId="Other/muster/oregon") == [
        "it asks for the external id Other/muster/oregon, and the stack's functions state Muster/muster/oregon"
    ]
    assert said(Version="0.1.0") == ["it is of version 0.1.0, and the stack of 0.2.0"]
    assert said(JobPrefix="old") == ["it takes jobs with the prefix old alone, and the stack's is muster"]
    assert said(Home="arn:other") == ["it belongs to arn:other, and not to arn:home"]
