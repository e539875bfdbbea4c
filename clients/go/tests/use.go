//go:build ignore

// A caller of what `throng client go` writes for the bank. A line after `wrong:` fails to compile, unless the types let something pass.
package main

import (
	"context"
	"fmt"
	"os"

	"written/bank"
	"written/throng"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	service, err := bank.New(os.Getenv("THRONG_URL"), throng.Settings{})
	must(err)
	_, err = service.AccountOpen(ctx, "use")
	must(err)
	balance, err := service.AccountDeposit(ctx, "use", bank.AccountDeposit{Cents: 500}, throng.Key("use"))
	must(err)
	var cents uint64 = balance.Cents
	// wrong: service.AccountDeposit(ctx, "use", bank.AccountDeposit{Euros: 5})
	// wrong: service.AccountDespoil(ctx, "use")
	_, err = service.AccountWithdraw(ctx, "use", bank.AccountWithdraw{Cents: 501})
	rejection, isRejection := service.AccountRejection(err)
	if !isRejection || rejection.IsClosed || rejection.BalanceTooLow.Cents != cents {
		panic(fmt.Sprint(rejection, err))
	}
	// wrong: fmt.Println(rejection.IsHaunted)
	for event, err := range service.AccountEvents(ctx, "use", "") {
		must(err)
		// The name tells which event it is.
		if deposited := event.Payload.Deposited; deposited != nil && deposited.Cents == cents && event.Cursor != "" {
			return
		}
	}
}
