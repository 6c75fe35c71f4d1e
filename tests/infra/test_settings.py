"""Settings: what a file may say, and the message for what it may not."""

import pytest

from muster.contract.errors import SettingsError
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.network_access import VpcConfig
from muster.infra.settings.settings_file import parse_settings, parse_tables
from muster.infra.settings.stack_settings import Platform, StackSettings, job_prefix_of

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab"
SPEC = {"replicas": 2, "trainer": "digits:train"}


def read(text: str, target: Platform = Platform.AWS) -> StackSettings:
    return parse_settings(parse_tables(text), target, text)


def refusal(text: str, target: Platform = Platform.AWS) -> list[str]:
    """The lines of the refusal behind the first."""
    with pytest.raises(SettingsError) as refused:
        read(text, target)
    first, *lines = str(refused.value).splitlines()
    assert first.startswith(f"muster.toml: {len(lines)} problem")
    assert first.endswith("nothing was changed.")
    return [line.removeprefix("  - ") for line in lines]


def test_what_the_tables_say_becomes_defaults_of_specs_and_schedules() -> None:
    settings = read(f"""
        [stack]
        name = "Team-A"
        job_prefix = "team7"
        kms_key_arn = "{KEY}"
        [replicas]
        instance_type = "ml.g5.xlarge"
        role_arn = "arn:aws:iam::123456789012:role/team"
        vpc = {{ subnets = ["subnet-1", "subnet-2"], security_group_ids = ["sg-1"] }}
        tags.cost-centre = "7"
        [runs]
        sweep_hours = 0
        [schedules.nightly]
        at = "cron(0 3 * * ? *)"
        spec = {{ replicas = 2, trainer = "digits:train" }}
        [schedules.weekly]
        at = "rate(7 days)"
        spec_key = "inbox/weekly.yaml"
    """)
    assert (settings.job_prefix, settings.runs.sweep_hours) == ("team7", 0)
    assert settings.schedules["nightly"].spec == SPEC
    assert settings.schedules["weekly"].spec_key == "inbox/weekly.yaml"
    # The stack's key is that of results and volumes, too, unless the replicas have one of their own.
    assert settings.defaults == StackDefaults(
        instance_type="ml.g5.xlarge",
        vpc_config=VpcConfig(subnets=["subnet-1", "subnet-2"], security_group_ids=["sg-1"]),
        kms_key_id=KEY,
        tags={"cost-centre": "7"},
        # The rights of the deployment's own role are not known.
        access=ReplicaAccess(data=None),
    )


def test_snapshots_are_refused_where_lambda_has_none() -> None:
    assert StackSettings().runs.snap_start is False
    on = "[runs]\nsnap_start = true\n"
    assert read(on).runs.snap_start is True
    assert read(f'{on}[stack]\nregion = "ap-southeast-2"').runs.snap_start is True
    for region in ("ap-east-2", "ap-southeast-6", "us-gov-west-1", "cn-north-1"):
        allowed = "a commercial region of AWS other than ap-east-2 and ap-southeast-6"
        assert refusal(f'{on}[stack]\nregion = "{region}"') == [
            f"line 2: runs.snap_start: found true in {region}; {allowed}; leave it out, or deploy to another region"
        ]
        assert read(f'[stack]\nregion = "{region}"').runs.snap_start is False
    [problem] = refusal(on, Platform.LOCAL)
    assert "runs.snap_start: found true; false on the embedded cloud, which takes no snapshots" in problem


def test_only_a_local_run_is_short_enough_to_be_rearmed_every_few_seconds() -> None:
    assert read("[runs]\nrearm_seconds = 5", Platform.LOCAL).runs.rearm_seconds == 5
    assert "at least 5" in refusal("[runs]\nrearm_seconds = 4", Platform.LOCAL)[0]
    assert "at least 7,600 on AWS" in refusal("[runs]\nrearm_seconds = 7599")[0]


def test_stacks_have_different_job_prefixes() -> None:
    names = ["Muster", "muster", "Muster-a", "Muster-b", "Team-A", "TeamA", "team-a", "research-group-1"]
    prefixes = [job_prefix_of(name) for name in names]
    assert prefixes[0] == "muster"
    assert len({prefix.lower() for prefix in prefixes}) == len(names)
    assert all(prefix.isalnum() and len(prefix) <= 11 for prefix in prefixes)
    assert job_prefix_of("Team-A") == "teama5ee60"


CODE = 'replicas = 1, trainer = "digits:train"'
REFUSED = [
    ('stack.name = "-x"', "letters, digits and hyphens, with a letter at the beginning"),
    ('stack.job_prefix = "with-hyphen"', "1 to 11 letters and digits"),
    ('stack.job_prefix = "new\\nline"', "1 to 11 letters and digits"),
    ('stack.account = "1234"', "12 digits"),
    ('stack.region = "Virginia"', "a region such as eu-west-1"),
    ('stack.permissions_boundary = "boundary"', "write the policy's whole ARN"),
    ('stack.kms_key_arn = "alias/team"', "write the key's ARN, not its ID or an alias"),
    ('stack.tags = { "aws:x" = "1" }', "this key is reserved"),
    ('bucket.name = "Team"', "lower-case letters"),
    ('bucket.existing = "s3://team"', "without s3://"),
    ('bucket.access_logs_prefix = "logs/"', "set without bucket.access_logs_bucket"),
    (f'replicas.image = "{"x" * 256}"', "at most 255 characters"),
    ('replicas.instance_type = "g5.xlarge"', "ml.family.size"),
    ('replicas.role_arn = "role/replica-of-the-team"', "write the role's whole ARN"),
    ('replicas.vpc = { subnets = ["subnet-1"] }', "replicas.vpc.security_group_ids: missing; it is required"),
    ('replicas.vpc = { subnets = [], security_group_ids = ["sg-1"] }', "replicas.vpc.subnets: found an empty list"),
    ('replicas.tags = { "muster:run" = "mine" }', "begins with neither aws: nor muster:"),
    ("\n".join(f'replicas.tags.key{n} = "{"v" * 200}"' for n in range(42)), "at most 3,000 bytes"),
    ("runs.rearm_seconds = 1.5", "a whole number"),
    ("runs.launches_per_second = 1001", "at most 1,000"),
    ("runs.sweep_hours = 169", "at most 168"),
    ("watch.log_retention_days = 8", "choose one of 1, 3, 5, 7"),
    ('notify.email = "nobody"', "such as team@example.com"),
    ('schedules."two words" = { at = "rate(1 day)", spec_key = "inbox/x" }', "letters, digits and single hyphens"),
    ('schedules.nightly = { at = "rate(1 day)" }', "neither spec nor spec_key"),
    ('schedules.nightly = { at = "at night", spec_key = "inbox/x" }', "rate(1 day)"),
    *(
        (f'schedules.nightly = {{ at = "{at}", spec_key = "inbox/x" }}', f"schedules.nightly.at: found '{at}'")
        for at in ("rate(0 days)", "rate(1 days)", "rate(2 day)", "rate(1 week)", "cron(0 3 * * *)")
    ),
    *(
        (f'schedules.nightly = {{ at = "cron(0 3 {days} *)", spec_key = "inbox/x" }}', "with ? for day or weekday")
        for days in ("* * *", "1 * MON", "? * ?")
    ),
    ('schedules.nightly = { at = "rate(1 day)", spec_key = "control/x" }', "begins with inbox/"),
    *(
        (f'schedules.nightly = {{ at = "rate(1 day)", spec = {{ {CODE}, {field} }} }}', f"nightly.spec.{said}")
        for field, said in (
            ('name = "mine"', "name: found 'mine'; leave it out"),
            ('source_dir = "."', "source_dir: found '.', a local folder"),
            ('role_arn = "team"', "role_arn: found 'team', a name"),
        )
    ),
    (
        'schedules.nightly = { at = "rate(1 day)", spec = { replicas = 1, recipe = "own.yaml" } }',
        "schedules.nightly.spec.recipe.file: found 'own.yaml', a local file",
    ),
    (
        'schedules.nightly = { at = "rate(1 day)", spec = { replicas = 1 } }',
        "schedules.nightly.spec.trainer: neither trainer nor entrypoint",
    ),
]
"""A line, and what is said of it."""


def test_a_schedule_may_be_whatever_eventbridge_takes() -> None:
    for at in (
        *("rate(1 minute)", "rate(2 minutes)", "rate(1 hour)", "rate(10 hours)", "rate(15 days)"),
        *("cron(0 3 * * ? *)", "cron(0/15 8-17 ? JAN,FEB MON-FRI *)", "cron(0 3 L * ? 2027)", "cron(0  3 ? * 6#3 *)"),
    ):
        assert read(f'schedules.nightly = {{ at = "{at}", spec_key = "inbox/x" }}').schedules["nightly"].at == at


def test_what_cannot_be_used_is_refused_with_its_line_and_what_to_do() -> None:
    for line, said in REFUSED:
        [problem] = refusal(f"# a comment\n{line}")
        assert problem.startswith("line 2: "), line
        assert said in problem, line
        assert len(problem) < 400, line


_ROLE, _CLUSTER = "arn:aws:iam::123456789012:role/team{}", "hyperpod_clusters.research"
NAMED_IN_POLICIES = (
    *('stack.name = "Team{}"', 'stack.job_prefix = "team{}"', f'stack.kms_key_arn = "{KEY}{{}}"'),
    *('bucket.name = "bucket{}"', 'bucket.existing = "bucket{}"'),
    *('replicas.data = ["s3://team{}/sets/"]', 'replicas.data = ["s3://team/sets{}/"]'),
    f'replicas = {{{{ data = ["s3://team/sets/"], data_kms_key_arns = ["{KEY}{{}}"] }}}}',
    *(f'replicas.kms_key_arn = "{KEY}{{}}"', f'replicas.role_arn = "{_ROLE}"'),
    f'replicas.further_role_arns = ["{_ROLE}"]',
    'replicas.vpc = {{ subnets = ["subnet-1{}"], security_group_ids = ["sg-1"] }}',
    'replicas.vpc = {{ subnets = ["subnet-1"], security_group_ids = ["sg-1{}"] }}',
    *('recipes.sources = ["s3://team{}/recipes/"]', 'recipes.sources = ["s3://team/recipes{}/"]'),
    'recipes.sources = ["s3://arn:aws:s3:us-east-1:123456789012:accesspoint/recipes{}/v1/"]',
    f'{_CLUSTER} = {{{{ eks_cluster = "research{{}}", namespaces = ["team-a"] }}}}',
    f'{_CLUSTER} = {{{{ eks_cluster = "research", namespaces = ["team-a{{}}"] }}}}',
)
"""Lines whose values are parts of resources in the policies of roles."""


def test_no_value_that_a_policy_names_is_a_pattern_or_a_variable() -> None:
    for line in NAMED_IN_POLICIES:
        read(line.format(""))
        for mark in ("*", "?", "${aws:username}"):
            assert refusal(line.format(mark)), (line, mark)


MISSPELLED = [
    ("[stak]", "stack"),
    ('[stack]\nnmae = "x"', "name"),
    ("[runs]\nlog_retention_days = 30", "watch.log_retention_days"),
    ('job_prefix = "a"', "stack.job_prefix"),
    ("[watch]\nlaunches_per_sec = 3", "runs.launches_per_second"),
    ('[schedules.nightly]\nat = "rate(1 day)"\nspec_key = "inbox/x"\nspek = 1', "spec"),
]
"""Lines with an unknown key, and the nearest known one."""


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    for line, nearest in MISSPELLED:
        [problem] = refusal(line)
        assert f"did you mean {nearest}?" in problem, line


def test_all_problems_are_told_at_once_in_the_files_order() -> None:
    problems = refusal(
        """
        [stack]
        nmae = "x"
        [bucket]
        name = "one"
        existing = "two"
        [replicas]
        image = "two words"
        [schedules.nightly]
        at = "rate(1 day)"
        """
    )
    assert [problem.partition(":")[0] for problem in problems] == ["line 3", "line 8", "line 5", "line 9"]


def test_what_is_no_toml_is_refused_with_its_place() -> None:
    with pytest.raises(SettingsError, match="line 2") as refused:
        read("[stack]\nname = \n")
    assert "it is not TOML" in str(refused.value)
