package throng

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
)

// Event is what happened to an entity, with a payload of the type P.
type Event[P any] struct {
	Seq      uint64 `json:"seq"`
	Name     string `json:"name"`
	Version  int    `json:"version"`
	At       string `json:"at"`
	Position string `json:"position"`
	Payload  P      `json:"payload"`
	// Where a later call goes on after it; of events that are followed.
	Cursor string `json:"cursor,omitempty"`
	// Of those who follow a whole kind.
	Entity string `json:"entity,omitempty"`
}

// As reads an answer, unless there is an error. Numbers without a type of their own become a json.Number, and stay exact.
func As[T any](answer json.RawMessage, err error) (T, error) {
	var value T
	if err != nil {
		return value, err
	}
	decoder := json.NewDecoder(bytes.NewReader(answer))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return value, fmt.Errorf("the answer is no %T: %w", value, err)
	}
	return value, nil
}

// Typed reads the payloads of events: each is the choice of P that its name tells, or nothing of P where P has no such choice.
func Typed[P any](events iter.Seq2[Event[json.RawMessage], error]) iter.Seq2[Event[P], error] {
	return func(yield func(Event[P], error) bool) {
		for event, err := range events {
			var typed Event[P]
			if err == nil {
				typed = Event[P]{event.Seq, event.Name, event.Version, event.At, event.Position, typed.Payload, event.Cursor, event.Entity}
				var choice []byte
				if choice, err = json.Marshal(map[string]json.RawMessage{event.Name: event.Payload}); err == nil {
					typed.Payload, err = As[P](choice, nil)
				}
			}
			if !yield(typed, err) || err != nil {
				return
			}
		}
	}
}

// ReadChoice reads JSON into a struct, of which it sets one field: a bool that a word names, or a pointer that the only field of an object names.
func ReadChoice(text []byte, choice any) error {
	fields := reflect.ValueOf(choice).Elem()
	named := func(name string, kind reflect.Kind) (reflect.Value, bool) {
		for at := range fields.NumField() {
			if field := fields.Field(at); fields.Type().Field(at).Tag.Get("json") == name && field.Kind() == kind {
				return field, true
			}
		}
		return fields, false
	}
	if word, err := As[string](text, nil); err == nil {
		if field, isKnown := named(word, reflect.Bool); isKnown {
			field.SetBool(true)
		}
		return nil
	}
	given, err := As[map[string]json.RawMessage](text, nil)
	for name, value := range given {
		if field, isKnown := named(name, reflect.Pointer); isKnown && err == nil {
			decoder := json.NewDecoder(bytes.NewReader(value))
			decoder.UseNumber()
			err = decoder.Decode(field.Addr().Interface())
		}
	}
	return err
}

// WriteChoice writes what ReadChoice reads.
func WriteChoice(choice any) ([]byte, error) {
	fields := reflect.ValueOf(choice)
	for at := range fields.NumField() {
		field, name := fields.Field(at), fields.Type().Field(at).Tag.Get("json")
		switch {
		case field.IsZero():
		case field.Kind() == reflect.Bool:
			return json.Marshal(name)
		default:
			return json.Marshal(map[string]any{name: field.Interface()})
		}
	}
	return nil, errors.New("no field of the choice is set")
}

// written is a body: an empty object, unless there is one.
func written(body any) ([]byte, error) {
	if body == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(body)
}

// with gives options, with a key of their own unless they have one.
func with(own []Option) options {
	to := options{key: newKey()}
	for _, option := range own {
		option(&to)
	}
	return to
}

func newKey() string { return rand.Text() }

// followed opens a stream again and again, until its loop is left, the context ends, or an error is final.
func followed(ctx context.Context, open func(yield func(Event[json.RawMessage]) bool) error) iter.Seq2[Event[json.RawMessage], error] {
	return func(yield func(Event[json.RawMessage], error) bool) {
		isLeft, inVain := false, 0
		for {
			err := open(func(event Event[json.RawMessage]) bool {
				inVain = 0
				isLeft = !yield(event, nil)
				return !isLeft
			})
			if isLeft {
				return
			}
			if ctx.Err() == nil && !isFinal(err) && sleep(ctx, pause(err, inVain)) == nil {
				inVain++
				continue
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			yield(Event[json.RawMessage]{}, err)
			return
		}
	}
}
