"""What `muster init` writes: a spec that can be run, with every field of the model in it."""

from __future__ import annotations

import re

from muster.client.cli.spec_template import spec_template
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec_text

TRAINER = "my_package.training:train"


def test_it_is_a_spec_as_it_stands() -> None:
    spec = parse_spec_text(spec_template("run.yaml", TRAINER))
    assert (spec.replicas, spec.trainer) == (4, TRAINER)


def test_every_field_is_there_once() -> None:
    named = re.findall(r"^(?:# )?([a-z_]+):(?: .*)?$", spec_template("run.yaml", TRAINER), re.MULTILINE)
    assert sorted(named) == sorted(Spec.model_fields)


def test_a_default_that_is_put_in_force_changes_nothing() -> None:
    text = spec_template("run.yaml", TRAINER)
    filled = re.sub(r'^# ([a-z_]+: (?:[\d."\[{]|true|false).*)$', r"\1", text, flags=re.MULTILINE)
    assert filled.count("\n# ") < text.count("\n# ")
    assert parse_spec_text(filled) == parse_spec_text(text)
