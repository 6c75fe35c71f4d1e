"""The instance types of SageMaker training that this release knows: those of the pinned botocore, which a test compares.

They stand here because SageMaker's own model is one of the largest of botocore: to read it takes longer than all else
that `muster plan` does. AWS adds types at any time, so that a type is not here is no error.
"""

from __future__ import annotations

TRAINING_INSTANCE_TYPES = frozenset(
    """
ml.c4.2xlarge ml.c4.4xlarge ml.c4.8xlarge ml.c4.xlarge ml.c5.18xlarge ml.c5.2xlarge ml.c5.4xlarge ml.c5.9xlarge
ml.c5.xlarge ml.c5n.18xlarge ml.c5n.2xlarge ml.c5n.4xlarge ml.c5n.9xlarge ml.c5n.xlarge ml.c6i.12xlarge
ml.c6i.16xlarge ml.c6i.24xlarge ml.c6i.2xlarge ml.c6i.32xlarge ml.c6i.4xlarge ml.c6i.8xlarge ml.c6i.xlarge
ml.c7i-flex.12xlarge ml.c7i-flex.16xlarge ml.c7i-flex.2xlarge ml.c7i-flex.4xlarge ml.c7i-flex.8xlarge
ml.c7i-flex.xlarge ml.c7i.12xlarge ml.c7i.16xlarge ml.c7i.24xlarge ml.c7i.2xlarge ml.c7i.48xlarge ml.c7i.4xlarge
ml.c7i.8xlarge ml.c7i.large ml.c7i.xlarge ml.c8i-flex.12xlarge ml.c8i-flex.16xlarge ml.c8i-flex.2xlarge
ml.c8i-flex.4xlarge ml.c8i-flex.8xlarge ml.c8i-flex.xlarge ml.c8i.12xlarge ml.c8i.16xlarge ml.c8i.24xlarge
ml.c8i.2xlarge ml.c8i.32xlarge ml.c8i.48xlarge ml.c8i.4xlarge ml.c8i.8xlarge ml.c8i.96xlarge ml.c8i.xlarge
ml.g4dn.12xlarge ml.g4dn.16xlarge ml.g4dn.2xlarge ml.g4dn.4xlarge ml.g4dn.8xlarge ml.g4dn.xlarge ml.g5.12xlarge
ml.g5.16xlarge ml.g5.24xlarge ml.g5.2xlarge ml.g5.48xlarge ml.g5.4xlarge ml.g5.8xlarge ml.g5.xlarge ml.g6.12xlarge
ml.g6.16xlarge ml.g6.24xlarge ml.g6.2xlarge ml.g6.48xlarge ml.g6.4xlarge ml.g6.8xlarge ml.g6.xlarge ml.g6e.12xlarge
ml.g6e.16xlarge ml.g6e.24xlarge ml.g6e.2xlarge ml.g6e.48xlarge ml.g6e.4xlarge ml.g6e.8xlarge ml.g6e.xlarge
ml.g7.12xlarge ml.g7.24xlarge ml.g7.2xlarge ml.g7.48xlarge ml.g7.4xlarge ml.g7.8xlarge ml.g7e.12xlarge ml.g7e.24xlarge
ml.g7e.2xlarge ml.g7e.48xlarge ml.g7e.4xlarge ml.g7e.8xlarge ml.m4.10xlarge ml.m4.16xlarge ml.m4.2xlarge ml.m4.4xlarge
ml.m4.xlarge ml.m5.12xlarge ml.m5.24xlarge ml.m5.2xlarge ml.m5.4xlarge ml.m5.large ml.m5.xlarge ml.m6i.12xlarge
ml.m6i.16xlarge ml.m6i.24xlarge ml.m6i.2xlarge ml.m6i.32xlarge ml.m6i.4xlarge ml.m6i.8xlarge ml.m6i.large
ml.m6i.xlarge ml.m7i-flex.12xlarge ml.m7i-flex.16xlarge ml.m7i-flex.2xlarge ml.m7i-flex.4xlarge ml.m7i-flex.8xlarge
ml.m7i-flex.large ml.m7i-flex.xlarge ml.m7i.12xlarge ml.m7i.16xlarge ml.m7i.24xlarge ml.m7i.2xlarge ml.m7i.48xlarge
ml.m7i.4xlarge ml.m7i.8xlarge ml.m7i.large ml.m7i.xlarge ml.m8i-flex.12xlarge ml.m8i-flex.16xlarge ml.m8i-flex.2xlarge
ml.m8i-flex.4xlarge ml.m8i-flex.8xlarge ml.m8i-flex.large ml.m8i-flex.xlarge ml.m8i.12xlarge ml.m8i.16xlarge
ml.m8i.24xlarge ml.m8i.2xlarge ml.m8i.32xlarge ml.m8i.48xlarge ml.m8i.4xlarge ml.m8i.8xlarge ml.m8i.96xlarge
ml.m8i.large ml.m8i.xlarge ml.p2.16xlarge ml.p2.8xlarge ml.p2.xlarge ml.p3.16xlarge ml.p3.2xlarge ml.p3.8xlarge
ml.p3dn.24xlarge ml.p4d.24xlarge ml.p4de.24xlarge ml.p5.48xlarge ml.p5.4xlarge ml.p5e.48xlarge ml.p5en.48xlarge
ml.p6-b200.48xlarge ml.p6-b300.48xlarge ml.p6e-gb200.36xlarge ml.r5.12xlarge ml.r5.16xlarge ml.r5.24xlarge
ml.r5.2xlarge ml.r5.4xlarge ml.r5.8xlarge ml.r5.large ml.r5.xlarge ml.r5d.12xlarge ml.r5d.16xlarge ml.r5d.24xlarge
ml.r5d.2xlarge ml.r5d.4xlarge ml.r5d.8xlarge ml.r5d.large ml.r5d.xlarge ml.r6i.12xlarge ml.r6i.16xlarge
ml.r6i.24xlarge ml.r6i.2xlarge ml.r6i.32xlarge ml.r6i.4xlarge ml.r6i.8xlarge ml.r6i.large ml.r6i.xlarge
ml.r7i.12xlarge ml.r7i.16xlarge ml.r7i.24xlarge ml.r7i.2xlarge ml.r7i.48xlarge ml.r7i.4xlarge ml.r7i.8xlarge
ml.r7i.large ml.r7i.xlarge ml.r8i-flex.12xlarge ml.r8i-flex.16xlarge ml.r8i-flex.2xlarge ml.r8i-flex.4xlarge
ml.r8i-flex.8xlarge ml.r8i-flex.large ml.r8i-flex.xlarge ml.r8i.12xlarge ml.r8i.16xlarge ml.r8i.24xlarge
ml.r8i.2xlarge ml.r8i.32xlarge ml.r8i.48xlarge ml.r8i.4xlarge ml.r8i.8xlarge ml.r8i.96xlarge ml.r8i.large
ml.r8i.xlarge ml.t3.2xlarge ml.t3.large ml.t3.medium ml.t3.xlarge ml.trn1.2xlarge ml.trn1.32xlarge ml.trn1n.32xlarge
ml.trn2.48xlarge
""".split()
)
"""The members of TrainingInstanceType, as CreateTrainingJob names them."""
