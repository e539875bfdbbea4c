"""A caller of what `throng client python` writes for the bank. mypy says where an `ignore` is not needed: there the types let something pass."""

import os
import sys

from bank import Bank
from throng_client import Rejection

bank = Bank(os.environ["THRONG_URL"])
bank.account_open("use")
balance = bank.account_deposit("use", {"cents": 500}, timeout=20)
cents: int = balance["cents"]
try:
    bank.account_withdraw("use", {"cents": 501})
except Rejection as error:
    print(f"there are {error.rejection['balance_too_low']['cents']} of {cents}")


def wrong() -> None:
    bank.account_deposit("use", {"euros": 5})  # type: ignore[typeddict-item]
    bank.account_despoil("use", {})  # type: ignore[attr-defined]


for event in bank.account_events("use"):
    cursor: str = event["cursor"]
    # The name tells which event it is.
    if event["name"] == "deposited":
        deposited: int = event["payload"]["cents"]
        sys.exit(0 if deposited == 500 else 1)
