"""Stores bytes in a bucket of a region and reads them back: bucket, region and number are its arguments."""

import sys

import boto3

bucket, region, size = sys.argv[1:]
s3 = boto3.client("s3", region_name=region)
s3.put_object(Bucket=bucket, Key="carried", Body=bytes(int(size)))
print(len(s3.get_object(Bucket=bucket, Key="carried")["Body"].read()))
