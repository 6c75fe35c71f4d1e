"""What the grand tour does not reach on the deployed stack, and why, or what shows it instead."""

from collections.abc import Mapping

_HOURS = "its function would have to fail for hours: tests/simulation, tests/conformance/test_state_machines.py"
_TOO_LARGE = "no state of this definition passes on as much, and no other error has these names"

WAYS_NOT_TAKEN: Mapping[str, str] = {
    "Plan the run - UnavailableError -> the same state, tried again": (
        "the embedded cloud names every error of a function Runtime.HandlerError: "
        "tests/unit/control/test_handlers.py, tests/simulation"
    ),
    **{
        f"{state} - States.DataLimitExceeded -> Muster failed": _TOO_LARGE
        for state in ("Plan the run", "Wait in the run queue", "Train the replicas", "Settle the run")
    },
    "Wait in the run queue - States.ALL -> Muster failed": _HOURS,
    "Train the replicas - States.ALL -> Muster failed": _HOURS,
    "Settle the run - States.ALL -> Muster failed": _HOURS,
    "Give up the replica - States.ALL -> Stop the whole run": _HOURS,
    **{
        f"Done, rerun or stop? - rule {way}": "the end of a job that exists is decided as its launch is given up: "
        "tests/unit/control/test_launch_failure.py, tests/simulation"
        for way in ("1 -> Wait before the rerun", "2 -> Launch the job and wait for its end")
    },
    "Done, rerun or stop? - rule 3 -> Stop the whole run": (
        "a launch that fails for good in a run without a replica to spare: tests/unit/control/test_launch_failure.py"
    ),
}
"""Ways of the state machine, as the ledger writes them."""

_FUNCTIONS = "Admit Attempt Notify Plan React Scale Settle Start Stop Sweep Timer"
_ENDS_ELSEWHERE = "what the other functions that end runs do for this one: tests/unit/control/test_settle.py"

RIGHTS_NOT_USED: Mapping[str, tuple[str, str]] = {
    # What a service does itself, on the role's behalf.
    "iam:PassRole": ("Launcher Plan", "checked within CreateTrainingJob and CreateSchedule, which the roles call"),
    "sagemaker:AddTags": ("Launcher", "checked within CreateTrainingJob"),
    "sts:TagSession": ("Attempt", "checked within AssumeRole"),
    "kms:Decrypt": ("Replica Settle Stop Sweep", "S3 and SageMaker use the key: tests/infra/test_access.py"),
    "lambda:InvokeFunction": ("TimerScheduler Workflow", "Step Functions and the scheduler call within the cloud"),
    "sqs:SendMessage": (_FUNCTIONS, "Lambda sends a dead letter within the cloud: the triggers"),
    "logs:CreateLogStream": (f"{_FUNCTIONS} Replica", "Lambda and SageMaker log within the cloud"),
    "logs:PutLogEvents": (f"{_FUNCTIONS} Replica", "Lambda and SageMaker log within the cloud"),
    **dict.fromkeys(
        (
            *("logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:DescribeLogGroups"),
            *("logs:DescribeResourcePolicies", "logs:GetLogDelivery", "logs:ListLogDeliveries"),
            *("logs:PutResourcePolicy", "logs:UpdateLogDelivery"),
        ),
        ("Workflow", "Step Functions delivers its log within the cloud"),
    ),
    **dict.fromkeys(
        (
            *("cloudwatch:PutMetricData", "logs:CreateLogGroup"),
            *("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"),
            *("ec2:DeleteNetworkInterfacePermission", "ec2:DescribeDhcpOptions", "ec2:DescribeNetworkInterfaces"),
            *("ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs"),
            *("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage"),
            *("ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer"),
            *("kms:CreateGrant", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
        ),
        ("Replica", "SageMaker calls for the job, and the embedded cloud's does not: tests/infra/test_access.py"),
    ),
    # What a run needs seldom.
    "s3:ListBucket": ("Admit Plan Start Timer", "without it S3 does not say that a key is missing; no call lists"),
    "s3:AbortMultipartUpload": ("Replica", "no contribution here has several parts: tests/unit/replica"),
    "sagemaker:DescribeHubContent": ("Plan", "a recipe of the public hub: tests/e2e/test_local_recipe_places.py"),
    "logs:DescribeLogStreams": ("Replica Stop Sweep", _ENDS_ELSEWHERE),
    "logs:GetLogEvents": ("Stop Sweep", _ENDS_ELSEWHERE),
    "states:DescribeExecution": ("Stop Sweep Workflow", _ENDS_ELSEWHERE),
    "states:StartExecution": (
        "Stop Sweep Workflow",
        f"{_ENDS_ELSEWHERE}; the map starts its children within the cloud",
    ),
    "states:StopExecution": (
        "Stop Sweep Workflow",
        "a continuation of a run that is cancelled: tests/unit/control/test_cancellation.py",
    ),
    "states:SendTaskFailure": (
        "Stop",
        "a replica given up with a sound record: tests/unit/control/test_launch_failure.py",
    ),
    "states:SendTaskSuccess": (
        "Scale Sweep Timer",
        "nobody else waits in this tour: tests/unit/control/test_sweep.py, tests/faults/test_elastic_runs.py",
    ),
}
"""By action: the roles that have it and do not call it here."""

_LOOKS = ("React Scale Settle Stop Sweep Timer", "whether a look at a job is needed depends on the events so far")

RIGHTS_BY_CHANCE: Mapping[str, tuple[str, str]] = {
    "sagemaker:DescribeTrainingJob": _LOOKS,
    "sagemaker:ListTags": _LOOKS,
    "states:SendTaskSuccess": ("Admit Settle Stop", "which of them finds first that a waiting run may begin"),
    "sagemaker:StopTrainingJob": (
        "Attempt React Settle",
        "whether a job begins behind its run's fence: tests/unit/control/test_attempt.py",
    ),
}
"""By action: the roles that call it in some tours only."""

_FAILING = "its function would have to fail three times, or for minutes: tests/infra/test_health_alarms.py"

TRIGGERS_NOT_SET_OFF: Mapping[str, str] = {
    "SweepScheduleRule": "it fires every six hours: tests/infra/test_rules.py",
    "StartSchedulenightlyRule": "it fires in the year 2199: tests/infra/test_rules.py",
    # The same for each function, and shown for the one that is called most by events.
    **{
        f"{function}HandlerFunctionEventInvokeConfig": "as that of React: tests/infra/test_resources.py"
        for function in _FUNCTIONS.split()
        if function != "React"
    },
    **dict.fromkeys((f"Healtherrors{name}" for name in ("attempt", "plan", "react", "settle", "stop")), _FAILING),
    **dict.fromkeys(("Healththrottlesattempt", "Healththrottlesreact", "Healthrerunsabovenormal"), _FAILING),
    "Healthdeadletters": "as the alarm of runs that failed: tests/infra/test_health_alarms.py",
}
"""Rules, alarms, subscriptions and configurations, by their constructs."""
