"""What we rely on in MiniStack beyond its public interface. Look here, and at docs/local.md, on an upgrade."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version

import pytest

RELIED_ON = {
    "ministack.app": ["app"],
    "ministack.core.iam_actions": ["_s3_object_context", "extract_resource_arn", "identity_denial_message"],
    "ministack.core.iam_evaluator": [
        "AuthError",
        "CredentialResolutionError",
        "EvalContext",
        "_action_matches",
        "_conditions_met",
        "_first_match",
        "_fnmatch_compile",
        "_gather_role_policies",
        "_gather_user_policies",
        "_permissions_boundary",
        "_resolve_condition_key",
        "_service_principal_matches",
        "enforce",
        "evaluate",
        "evaluate_resource_policy",
        "evaluate_trust_policy",
        "find_iam_access_key_account",
        "is_root_access_key",
        "parse_policy_document",
        "pin_request_origin",
        "pin_signed_body",
        "pin_signed_request",
        "resolve_credential",
        "resolve_principal",
        "validate_policy_document",
    ],
    "ministack.core.lambda_runtime": ["_lock", "_workers", "kill_workers", "reset", "subprocess", "zipfile"],
    "ministack.core.responses": [
        "_account_from_sts_session",
        "get_account_id",
        "get_region",
        "request_scope",
        "set_request_account_id",
        "set_request_region",
    ],
    "ministack.core.router": ["extract_access_key_id"],
    "ministack.core.sigv4": [
        "build_canonical_request",
        "build_string_to_sign",
        "calculate_signature",
        "header_signature_failure",
        "parse_header_signature",
        "parse_query_signature",
        "signatures_match",
    ],
    "ministack.services.cloudwatch_logs": ["_create_log_group", "_create_log_stream", "_put_log_events"],
    "ministack.services.eks": [
        "_access_entries",
        "_access_entry_for_principal",
        "_access_policy_associations",
        "_ae_key",
        "_associate_access_policy",
        "_build_access_entry",
        "_clusters",
        "_create_access_entry",
        "_create_cluster",
        "_create_pod_identity_association",
        "_delete_access_entry",
        "_disassociate_access_policy",
        "_error",
        "_pia_key",
        "_pod_identity_association_arn",
        "_pod_identity_associations",
        "_resolve_tag_resource_arn",
        "_tag_resource_not_found",
        "_update_access_entry",
        "_update_pod_identity_association",
    ],
    "ministack.services.eventbridge": ["_dispatch_to_lambda", "_put_events", "_validate_target_arn"],
    "ministack.services.cloudformation.provisioners": ["_RESOURCE_HANDLERS", "_S3_BUCKET_CONFIGURATIONS"],
    "ministack.services.iam": ["_IAM_HANDLERS", "_access_keys", "_error", "_p", "_roles", "_users", "_xml"],
    "ministack.services.lambda_svc": [
        "_acquire_execution_slot",
        "_execution_record_for_config",
        "_functions",
        "_get_func_record_for_ref",
        "_release_execution_slot",
        "_route_async_failure",
        "_update_code",
        "_update_config",
        "invoke_async_with_retry",
    ],
    "ministack.services.s3": [
        "_bucket_lifecycle",
        "_buckets",
        "_delete_bucket_lifecycle",
        "_delete_object",
        "_multipart_uploads",
        "_put_bucket_lifecycle",
    ],
    "ministack.services.scheduler": ["_SCHEDULE_TICK_INTERVAL", "_create_schedule", "_error"],
    "ministack.services.sns": ["_lambda_svc"],
    "ministack.services.sqs": ["_act_send_message", "_queue_by_arn"],
    "ministack.services.stepfunctions": [
        "_ExecutionError",
        "_call_lambda",
        "_execute_task",
        "_executions",
        "_fail_execution",
        "_invoke_with_callback",
        "_map_runs",
        "_send_task_failure",
        "_send_task_heartbeat",
        "_send_task_success",
        "_start_execution",
        "_stop_execution",
        "_task_tokens",
    ],
    "ministack.services.sts": ["_sessions", "register_session"],
}


def test_the_version_is_the_one_that_this_was_written_against() -> None:
    assert version("ministack") == "1.5.33"


@pytest.mark.parametrize("module", RELIED_ON)
def test_what_we_touch_is_there(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in RELIED_ON[module] if not hasattr(loaded, name)] == []


def test_events_of_aws_sources_can_still_be_put_from_inside() -> None:
    eventbridge = importlib.import_module("ministack.services.eventbridge")
    assert "allow_aws_source" in inspect.signature(eventbridge._put_events).parameters
