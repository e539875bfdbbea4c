"""A command, a refusal and a problem by the client that openapi-python-client wrote for the bank."""

import os

from generated import Client
from generated.api.account import account_deposit, account_get_view, account_open, account_withdraw
from generated.models import AccountDepositBody, AccountOpenBody, AccountWithdrawBody

client = Client(base_url=os.environ["THRONG_URL"])
id = "openapi-python-client"
account_open.sync(id, client=client, body=AccountOpenBody())
assert account_deposit.sync(id, client=client, body=AccountDepositBody(cents=500)).cents == 500
refusal = account_withdraw.sync_detailed(id, client=client, body=AccountWithdrawBody(cents=900))
assert refusal.status_code == 409 and refusal.parsed.status == 409, refusal
assert refusal.parsed.rejection.balance_too_low.cents == 500, refusal.parsed
assert account_get_view.sync("nobody", client=client).type_ == "/problems/unknown-entity"
