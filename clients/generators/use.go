// A command, a refusal and a problem by the client that openapi-generator (go) wrote for the bank.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	client "github.com/throng/client"
)

// refusal reads the problem that an error carries.
func refusal(err error) map[string]any {
	var failed *client.GenericOpenAPIError
	if !errors.As(err, &failed) {
		log.Fatalf("not refused: %v", err)
	}
	problem := map[string]any{}
	if err := json.Unmarshal(failed.Body(), &problem); err != nil {
		log.Fatal(err)
	}
	return problem
}

func main() {
	settings := client.NewConfiguration()
	settings.Servers = client.ServerConfigurations{{URL: os.Getenv("THRONG_URL")}}
	api, scope, id := client.NewAPIClient(settings).AccountAPI, context.Background(), "ü/go"
	if _, _, err := api.AccountOpen(scope, id).Body(map[string]any{}).Execute(); err != nil {
		log.Fatal(err)
	}
	balance, _, err := api.AccountDeposit(scope, id).AccountDepositRequest(client.AccountDepositRequest{Cents: 500}).Execute()
	if err != nil || balance.Cents != 500 {
		log.Fatal(balance, err)
	}
	_, _, err = api.AccountWithdraw(scope, id).AccountDepositRequest(client.AccountDepositRequest{Cents: 900}).Execute()
	if problem := refusal(err); problem["status"] != 409.0 || problem["rejection"] == nil {
		log.Fatal(problem)
	}
	_, _, err = api.AccountGetView(scope, "nobody").Execute()
	if problem := refusal(err); problem["type"] != "/problems/unknown-entity" {
		log.Fatal(problem)
	}
}
