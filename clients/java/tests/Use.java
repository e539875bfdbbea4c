// A caller of what `throng client java` writes for the bank. A line after `wrong:` fails to compile, unless the types let something pass.

import bank.Bank;
import throng.client.Failure;
import throng.client.Options;

public class Use {
    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(found);
    }

    public static void main(String[] arguments) {
        var bank = new Bank(System.getenv("THRONG_URL"));
        bank.accountOpen("use");
        var balance = bank.accountDeposit("use", new Bank.AccountDeposit(500), Options.ofKey("use"));
        long cents = balance.cents();
        // wrong: bank.accountDeposit("use", new Bank.AccountDeposit("5"));
        // wrong: bank.accountDespoil("use");
        try {
            bank.accountWithdraw("use", new Bank.AccountWithdraw(501));
        } catch (Failure.Rejection no) {
            var rejection = bank.accountRejection(no);
            check(rejection instanceof Bank.AccountRejection.BalanceTooLow low && low.value().cents() == cents, no);
            // wrong: check(rejection instanceof Bank.AccountRejection.IsHaunted, no);
        }
        try {
            bank.accountClose("use");
        } catch (Failure.Rejection no) {
            check(bank.accountRejection(no) instanceof Bank.AccountRejection.IsNotEmpty, no);
        }
        try (var events = bank.accountEvents("use", null)) {
            for (var event : events) {
                // The name tells which event it is.
                if (!(event.payload() instanceof Bank.AccountEvent.Deposited deposited)) continue;
                check(deposited.value().cents() == cents && event.cursor() != null, event);
                break;
            }
        }
    }
}
