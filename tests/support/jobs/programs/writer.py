"""Tries to write to S3 with its own credentials: BUCKET and KEY as arguments; prints the error's code."""

import sys

import boto3
from botocore.exceptions import ClientError

try:
    boto3.client("s3").put_object(Bucket=sys.argv[1], Key=sys.argv[2], Body=b"mine")
    print("written")
except ClientError as error:
    print(error.response["Error"]["Code"])
# A container is not told its region.
print(boto3.client("sts", region_name="us-east-1").get_caller_identity()["Arn"])
