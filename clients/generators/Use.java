// A command, a refusal and a problem by the client that openapi-generator (java) wrote for the bank.

import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.AccountApi;
import org.openapitools.client.model.AccountDepositRequest;

public class Use {
    interface Ask { void ask() throws ApiException; }

    static ApiException refused(Ask ask) {
        try {
            ask.ask();
        } catch (ApiException error) {
            return error;
        }
        throw new AssertionError("not refused");
    }

    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(found);
    }

    public static void main(String[] arguments) throws ApiException {
        var client = new ApiClient();
        client.updateBaseUri(System.getenv("THRONG_URL"));
        var api = new AccountApi(client);
        var id = "ü/java";
        api.accountOpen(id, Map.of(), null, null, null);
        var balance = api.accountDeposit(id, new AccountDepositRequest().cents(500), null, null, null);
        check(balance.getCents() == 500, balance);
        var refusal = refused(() -> api.accountWithdraw(id, new AccountDepositRequest().cents(900), null, null, null));
        check(refusal.getCode() == 409 && refusal.getResponseBody().contains("balance_too_low"), refusal);
        var problem = refused(() -> api.accountGetView("nobody", null, null));
        check(problem.getCode() == 404 && problem.getResponseBody().contains("/problems/unknown-entity"), problem);
    }
}
