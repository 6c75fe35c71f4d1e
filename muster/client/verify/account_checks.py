"""Facts that only an account can settle: rates of calls, prices, images, addresses of the console."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from botocore.config import Config
from botocore.exceptions import ClientError as AwsError

from muster.client.aws.connection import CONFIG
from muster.client.aws.error_translation import error_code, is_throttle
from muster.client.aws.price_list import listed_prices
from muster.client.aws.s3_route import Routes, nat_warning, read_routes
from muster.client.verify.asking import allowed
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, failed, info, judged, ok
from muster.contract.aws.prices import SHIPPED_PRICES, PriceTable
from muster.contract.aws.stock_images import EcrImage
from muster.report.links import console_links

RATES, PRICES, IMAGE, CONSOLE, ROUTE = "call-rates", "prices", "image", "console-links", "route-to-s3"

PROBES = 20
_ONCE = CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))
# The shipped table is of one region and one day.
_PRICE_FACTOR = 2.0


@dataclass(frozen=True)
class Probe:
    """How a row of calls went."""

    operation: str
    calls: int
    throttled: int
    seconds: float


def gather_rates(account: Account, job: str) -> tuple[Probe, ...]:
    """Twenty DescribeTrainingJob and twenty ListTags of one job, one after another, without retries."""
    client = account.other("sagemaker", _ONCE)
    with allowed("sagemaker:DescribeTrainingJob"):
        arn = client.describe_training_job(TrainingJobName=job)["TrainingJobArn"]
    calls: Mapping[str, Callable[[], object]] = {
        "DescribeTrainingJob": lambda: client.describe_training_job(TrainingJobName=job),
        "ListTags": lambda: client.list_tags(ResourceArn=arn),
    }
    return tuple(_probe(operation, call) for operation, call in calls.items())


def _probe(operation: str, call: Callable[[], object]) -> Probe:
    throttled, began = 0, time.monotonic()
    with allowed(f"sagemaker:{operation}"):
        for _ in range(PROBES):
            try:
                call()
            except AwsError as error:
                if not is_throttle(error_code(error)):
                    raise
                throttled += 1
    return Probe(operation, PROBES, throttled, time.monotonic() - began)


def judge_rates(probes: tuple[Probe, ...]) -> Iterator[Check]:
    """SageMaker publishes no rates; Muster's functions retry, so a throttle costs time and fails nothing."""
    assumes = f"{' and '.join(probe.operation for probe in probes)} can be called ten times a second"
    seen = [
        f"{probe.operation}: {probe.calls} calls in {probe.seconds:.1f} s, {probe.throttled} throttled"
        for probe in probes
    ]
    slow = [
        text for text, probe in zip(seen, probes, strict=True) if probe.throttled and probe.seconds * 10 > probe.calls
    ]
    remedy = "Runs of many replicas start more slowly here. Ask AWS for a higher rate, and add this line to an issue."
    yield judged(
        RATES, slow, f"{'; '.join(seen)}. CreateTrainingJob was called for the run alone.", remedy, assumes=assumes
    )


def gather_prices(account: Account, instance_type: str) -> tuple[str, PriceTable]:
    """One call to the Price List API."""
    region = account.session.region_name
    with allowed("pricing:GetProducts"):
        return instance_type, listed_prices(account.session, region, [instance_type])


def judge_prices(facts: tuple[str, PriceTable]) -> Iterator[Check]:
    """The filter finds the price of training on the type, and it is near the shipped one."""
    name, table = facts
    assumes = (
        "the Price List API lists training under productFamily `ML Instance` with a usage type that ends in Train:TYPE"
    )
    found, shipped = table.usd_per_hour.get(name), SHIPPED_PRICES.usd_per_hour.get(name)
    if found is None:
        seen = f"GetProducts has no price for training on {name} in {table.region}."
        yield failed(PRICES, seen, "`muster plan --deployed` cannot price runs here.", assumes=assumes)
        return
    seen = f"{name} costs ${found:g} an hour in {table.region}."
    far = shipped is not None and not shipped / _PRICE_FACTOR <= found <= shipped * _PRICE_FACTOR
    problems = (
        [f"{name} costs ${found:g} an hour in {table.region}, and ${shipped:g} in {SHIPPED_PRICES.region}"]
        if far
        else []
    )
    yield judged(PRICES, problems, seen, "Check the price: the filter may have found another product.", assumes=assumes)


def gather_routes(account: Account, subnets: Sequence[str]) -> tuple[Sequence[str], Routes]:
    """Three calls to EC2."""
    with allowed("ec2:Describe*"):
        return subnets, read_routes(account.other("ec2"), subnets[0], account.session.region_name)


def judge_routes(facts: tuple[Sequence[str], Routes]) -> Iterator[Check]:
    """Whether the replicas' way to S3 costs money by the gigabyte."""
    warning = nat_warning(*facts)
    yield info(ROUTE, warning) if warning else ok(ROUTE, "no NAT gateway is on the replicas' way to S3.")


@dataclass(frozen=True)
class ImageFacts:
    """The image of the run, as the registry knows it."""

    uri: str
    region: str
    digest: str = ""
    problem: str = ""


def gather_image(account: Account, uri: str) -> ImageFacts:
    """One call to the registry of the image's account, where it is in ECR."""
    region, image = account.session.region_name, EcrImage.parse(uri)
    if image is None or image.region != region:
        return ImageFacts(uri, region)
    version = image.version or ":latest"
    wanted = {"imageDigest": version[1:]} if version.startswith("@") else {"imageTag": version[1:]}
    arn = f"arn:{account.identity.partition}:ecr:{region}:{image.account}:repository/{image.repository}"
    with allowed("ecr:BatchGetImage", arn):
        try:
            answer = account.other("ecr").batch_get_image(
                registryId=image.account, repositoryName=image.repository, imageIds=[wanted]
            )
        except AwsError as error:
            if error_code(error) != "RepositoryNotFoundException":
                raise
            return ImageFacts(uri, region, problem=f"there is no repository {image.repository} in {image.account}")
    if answer["images"]:
        return ImageFacts(uri, region, digest=answer["images"][0]["imageId"]["imageDigest"])
    reason = answer["failures"][0].get("failureReason", "") if answer["failures"] else "no such image"
    return ImageFacts(uri, region, problem=reason)


def judge_image(facts: ImageFacts) -> Iterator[Check]:
    """The image exists in the stack's region."""
    assumes = "AWS's own training images are in the registry that their address names, in every region"
    image = EcrImage.parse(facts.uri)
    if image is None:
        yield info(IMAGE, f"{facts.uri} is not in ECR; whether it can be pulled shows in the run.", assumes=assumes)
    elif image.region != facts.region:
        seen = f"{facts.uri} is in {image.region}; SageMaker pulls images of its own region only, {facts.region}."
        yield failed(IMAGE, seen, "Copy the image into a repository of this region.", assumes=assumes)
    elif facts.problem:
        remedy = "Name an image that is in this region: --image, or the stack's default image."
        yield failed(IMAGE, f"{facts.uri} cannot be found: {facts.problem}.", remedy, assumes=assumes)
    else:
        yield ok(IMAGE, f"{facts.uri} is there, as {facts.digest[:19]}.", assumes=assumes)


def judge_console(execution_arn: str, prefix: str) -> Iterator[Check]:
    """The link to the run's execution: a person must open it, because the console answers only a browser."""
    seen = f"the link to the run's execution is {console_links(execution_arn, prefix).execution}"
    yield info(
        CONSOLE, seen, "Open it in a browser: it must show the execution.", assumes="console links have this form"
    )
