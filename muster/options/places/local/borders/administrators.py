"""The administrators of the accounts: MiniStack has one root user, that of the cloud's own account.

Each other account has a user that may do everything, as accounts have that are administered through IAM.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass

from ministack.core import responses
from ministack.services import iam

from muster.local.ministack.host import Account

NAME = "administrator"
_EVERYTHING = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


@dataclass(frozen=True)
class Credentials:
    """An access key."""

    access_key_id: str
    secret_access_key: str


def create(account: Account, root_secret: str) -> Credentials:
    """The administrator of an account, whose key is as lasting as that of the root user.

    For a second place of the account it is the same one.
    """

    def derived(purpose: str) -> str:
        text = f"{purpose} of {account.account_id}"
        return hmac.new(root_secret.encode(), text.encode(), hashlib.sha256).hexdigest()

    credentials = Credentials(f"AKIA{derived('key')[:16].upper()}", derived("secret")[:40])
    with responses.request_scope(account.account_id, account.region):
        if NAME not in iam._users:
            iam._IAM_HANDLERS["CreateUser"]({"UserName": [NAME]})
        iam._user_inline_policies[NAME] = {"everything": json.dumps(_EVERYTHING)}
        iam._access_keys[credentials.access_key_id] = {
            "UserName": NAME,
            "AccessKeyId": credentials.access_key_id,
            "SecretAccessKey": credentials.secret_access_key,
            "Status": "Active",
            "CreateDate": iam._now(),
        }
    return credentials
