"""A command, a refusal and a problem by the client that openapi-generator (python) wrote for the bank."""

import json
import os

from openapi_client import AccountApi, AccountDepositRequest, ApiClient, ApiException, Configuration

api = AccountApi(ApiClient(Configuration(host=os.environ["THRONG_URL"])))


def refused(ask, *arguments):
    try:
        ask(*arguments)
    except ApiException as error:
        return error.status, json.loads(error.body)
    raise SystemExit("not refused")


id = "ü/python"
api.account_open(id, {})
assert api.account_deposit(id, AccountDepositRequest(cents=500)).cents == 500
assert api.account_get_view(id).cents == 500
status, problem = refused(api.account_withdraw, id, AccountDepositRequest(cents=900))
assert (status, problem["rejection"]) == (409, {"balance_too_low": {"cents": 500}})
status, problem = refused(api.account_get_view, "nobody")
assert (status, problem["type"]) == (404, "/problems/unknown-entity")
