// Runs clients/cases.json, whose first lines say what a step is, against THRONG_URL. Arguments: the file, and a part of a case's name.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"throng"
)

const patience = 60 * time.Second

type object = map[string]any

// tree is any value as JSON has it.
func tree(value any) any {
	text, err := json.Marshal(value)
	if err == nil {
		value, err = throng.As[any](text, nil)
	}
	if err != nil {
		panic(err)
	}
	return value
}

func control(demand any) any {
	text, _ := json.Marshal(demand)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("THRONG_CONTROL"), bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	var done any
	if err := json.NewDecoder(answer.Body).Decode(&done); err != nil {
		panic(err)
	}
	return tree(done)
}

// outcome is one as the cases name it.
func outcome(reply any, err error) any {
	var problem *throng.Problem
	var deadline *throng.Deadline
	var unreachable *throng.Unreachable
	switch {
	case err == nil:
		return tree(object{"reply": reply})
	case errors.As(err, &deadline):
		return object{"error": "Deadline", "may_have_happened": deadline.MayHaveHappened}
	case errors.Is(err, context.Canceled):
		return object{"error": "Cancelled"}
	case errors.As(err, &unreachable):
		return object{"error": "Unreachable"}
	case errors.As(err, &problem):
		named := object{"problem": problem.Code(), "status": problem.Status}
		if rejection, is := throng.RejectionOf[any](err); is {
			named["rejection"] = rejection
		}
		return tree(named)
	}
	return object{"error": err.Error()}
}

// differs says where a part of expected is not in found; lists are as long.
func differs(found, expected any, at string) string {
	given, isObject := found.(object)
	list, isList := found.([]any)
	switch expected := expected.(type) {
	case object:
		if integer, is := expected["integer"]; is {
			return differs(fmt.Sprint(found), integer, at)
		}
		for name, value := range expected {
			if difference := differs(given[name], value, at+"."+name); difference != "" {
				return difference
			}
		}
		if isObject {
			return ""
		}
	case []any:
		if isList && len(list) == len(expected) {
			for number := range list {
				if difference := differs(list[number], expected[number], fmt.Sprintf("%s.%d", at, number)); difference != "" {
					return difference
				}
			}
			return ""
		}
	case json.Number:
		number, isNumber := found.(json.Number)
		one, _ := number.Float64()
		other, _ := expected.Float64()
		if isNumber && one == other {
			return ""
		}
	default:
		if reflect.DeepEqual(found, expected) {
			return ""
		}
	}
	return fmt.Sprintf("%s: %v, not %v", at, found, expected)
}

func check(found, expected any) {
	if expected == nil {
		return
	}
	if difference := differs(found, expected, ""); difference != "" {
		panic(difference)
	}
}

type runner struct {
	client  *throng.Client
	socket  *throng.Socket
	own     string
	next    map[string]func() (throng.Event[json.RawMessage], error, bool)
	stops   map[string]func()
	cancels map[string]context.CancelFunc
	running map[string]chan any
}

func run(number int, steps []any) (difference any) {
	var count int
	token := func(context.Context) (string, error) {
		count++
		return fmt.Sprintf("token-%d", count), nil
	}
	client, err := throng.New(os.Getenv("THRONG_URL"), throng.Settings{Token: token})
	if err != nil {
		return err
	}
	runner := runner{
		client, client.Socket(), fmt.Sprintf("case-%d", number), map[string]func() (throng.Event[json.RawMessage], error, bool){},
		map[string]func(){}, map[string]context.CancelFunc{}, map[string]chan any{},
	}
	defer func() {
		difference = recover()
		for _, cancel := range runner.cancels {
			cancel()
		}
		runner.socket.Close()
		control(object{"do": "start"})
		control(object{"do": "faults", "faults": []any{}})
	}()
	for _, step := range steps {
		runner.step(step.(object))
	}
	return nil
}

func text(step object, name, otherwise string) string {
	if value, is := step[name]; is && value != nil {
		return fmt.Sprint(value)
	}
	return otherwise
}

func integer(step object, name string, otherwise int) int {
	if value, is := step[name]; is {
		number, _ := value.(json.Number).Int64()
		return int(number)
	}
	return otherwise
}

func page(step any) throng.Page {
	return throng.Page{After: text(step.(object), "after", ""), Limit: integer(step.(object), "limit", 0)}
}

func (runner *runner) ask(ctx context.Context, step object) any {
	kind, id := text(step, "kind", "account"), text(step, "id", runner.own)
	var options []throng.Option
	if key, is := step["key"]; is {
		options = append(options, throng.Key(text(step, "key", "")))
		if key == nil {
			options = []throng.Option{throng.NoKey()}
		}
	}
	if trace, is := step["traceparent"].(string); is {
		options = append(options, throng.Traceparent(trace))
	}
	if timeout := integer(step, "timeout", 0); timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(timeout)*time.Millisecond)
		defer cancel()
	}
	isSocket := step["socket"] == true
	var reply any
	var err error
	switch {
	case step["command"] != nil && isSocket:
		reply, err = runner.socket.Command(ctx, kind, id, text(step, "command", ""), step["body"], options...)
	case step["command"] != nil:
		reply, err = runner.client.Command(ctx, kind, id, text(step, "command", ""), step["body"], options...)
	case step["query"] != nil && isSocket:
		reply, err = runner.socket.Query(ctx, kind, id, text(step, "query", ""), step["arguments"])
	case step["query"] != nil:
		reply, err = runner.client.Query(ctx, kind, id, text(step, "query", ""), step["arguments"])
	case step["history"] != nil:
		reply, err = runner.client.History(ctx, kind, id, page(step["history"]))
	case step["list"] != nil:
		reply, err = runner.client.List(ctx, kind, page(step["list"]))
	case step["get"] != nil:
		reply, err = runner.client.Request(ctx, http.MethodGet, text(step, "get", ""), nil)
	case step["batch"] != nil:
		var calls []throng.Call
		for range integer(step, "times", 1) {
			for _, call := range step["batch"].([]any) {
				call := call.(object)
				calls = append(calls, throng.Call{Kind: kind, ID: text(call, "id", id), Command: text(call, "command", ""), Body: call["body"]})
			}
		}
		var outcomes []throng.Outcome
		outcomes, err = runner.socket.Batch(ctx, calls)
		var each []any
		for _, one := range outcomes {
			each = append(each, outcome(one.Reply, one.Err))
		}
		reply = each
	default:
		panic(fmt.Sprintf("a step of no kind: %v", step))
	}
	return outcome(reply, err)
}

func (runner *runner) step(step object) {
	ctx, cancel := context.WithCancel(context.Background())
	name, expected := text(step, "as", ""), step["expect"]
	runner.cancels[name] = cancel
	begin := func(ask func() any) {
		answer := make(chan any, 1)
		runner.running[name] = answer
		go func() { answer <- ask() }()
	}
	taken := func(name string) (throng.Event[json.RawMessage], error) {
		event, err, isMore := runner.next[name]()
		if !isMore {
			panic(name + " ended")
		}
		return event, err
	}
	fails := func() any {
		event, err := taken(text(step, "fails", ""))
		return outcome(object{"value": event}, err)
	}
	switch {
	case step["control"] != nil:
		check(control(step["control"]), expected)
	case step["follow"] != nil:
		what := step["follow"].(object)
		kind, id, after := text(what, "kind", "account"), text(what, "id", runner.own), text(what, "after", "")
		events := runner.client.Events(ctx, kind, id, after)
		if step["socket"] == true {
			if step["of_kind"] == true {
				id = ""
			}
			events = runner.socket.Follow(ctx, throng.Subscription{Kind: kind, ID: id, After: after, Credit: integer(step, "credit", 0)})
		}
		runner.next[name], runner.stops[name] = iter.Pull2(events)
	case step["take"] != nil:
		var names, seqs, events []any
		for count := integer(step, "count", 0); len(events) < count; {
			event, err := taken(text(step, "take", ""))
			if err != nil {
				panic(err)
			}
			// Of those who follow a kind: the case's own.
			if event.Entity == "" || event.Entity == runner.own {
				names, seqs, events = append(names, event.Name), append(seqs, tree(event.Seq)), append(events, tree(event))
			}
		}
		check(names, step["names"])
		check(seqs, step["seqs"])
		check(events, step["events"])
	case step["fails"] != nil && name != "":
		begin(fails)
	case step["fails"] != nil:
		check(fails(), expected)
	case step["leave"] != nil:
		runner.stops[text(step, "leave", "")]()
	case step["cancel"] != nil:
		runner.cancels[text(step, "cancel", "")]()
	case step["await"] != nil:
		check(<-runner.running[text(step, "await", "")], expected)
	case name != "":
		begin(func() any { return runner.ask(ctx, step) })
	default:
		check(runner.ask(ctx, step), expected)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	cases, err := throng.As[struct {
		Cases []struct {
			Name  string
			Steps []any
		}
	}](text, nil)
	if err != nil {
		panic(err)
	}
	passed, failed := 0, 0
	for number, one := range cases.Cases {
		if len(os.Args) > 2 && !strings.Contains(one.Name, os.Args[2]) {
			continue
		}
		done := make(chan any, 1)
		go func() { done <- run(number, one.Steps) }()
		var difference any
		select {
		case difference = <-done:
		case <-time.After(patience):
			difference = "took too long"
		}
		if difference == nil {
			passed++
			continue
		}
		failed++
		fmt.Printf("FAILED %s\n    %v\n", one.Name, difference)
	}
	fmt.Printf("go: %d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}
