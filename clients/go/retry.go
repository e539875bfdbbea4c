package throng

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const (
	backOffFirst = 50 * time.Millisecond
	backOffMax   = 2 * time.Second
)

// Problem is a no of the service (RFC 9457). Match on Code.
type Problem struct {
	Type       string          `json:"type"`
	Title      string          `json:"title"`
	Status     int             `json:"status"`
	Detail     string          `json:"detail"`
	Field      string          `json:"field,omitempty"`
	RetryAfter *float64        `json:"retry_after_s,omitempty"`
	Rejection  json.RawMessage `json:"rejection,omitempty"`
}

func (problem *Problem) Error() string { return problem.Title + ": " + problem.Detail }

// Code is the last part of the type: "unknown-entity", or the code of an entity's rejection.
func (problem *Problem) Code() string {
	if at := strings.LastIndex(problem.Type, "/problems/"); at >= 0 {
		return problem.Type[at+len("/problems/"):]
	}
	return problem.Type
}

// RejectionOf reads an entity's no, in its own words; nothing was done. False: the error is no rejection.
func RejectionOf[T any](err error) (rejection T, is bool) {
	var problem *Problem
	if !errors.As(err, &problem) || problem.Rejection == nil {
		return rejection, false
	}
	rejection, err = As[T](problem.Rejection, nil)
	return rejection, err == nil
}

// problemOf reads the problem of an answer. A proxy before the service says no in words of its own.
func problemOf(status int, body []byte, retryAfter string) *Problem {
	problem := Problem{Status: status}
	if json.Unmarshal(body, &problem) != nil || problem.Type == "" {
		code := fmt.Sprintf("status/%d", status)
		problem = Problem{Type: code, Title: fmt.Sprintf("Status %d", status), Status: status, Detail: string(body[:min(len(body), 200)])}
	}
	if seconds, err := strconv.ParseUint(retryAfter, 10, 31); err == nil && problem.RetryAfter == nil {
		after := float64(seconds)
		problem.RetryAfter = &after
	}
	return &problem
}

// Unreachable says that there was no answer: the service cannot be reached, or the connection was cut.
type Unreachable struct{ Cause error }

func (err *Unreachable) Error() string { return "There was no answer: " + err.Cause.Error() }

func (err *Unreachable) Unwrap() error { return err.Cause }

// Deadline says that the time was over before an answer came. It is a context.DeadlineExceeded.
type Deadline struct {
	// An attempt may have taken effect, and it is not known.
	MayHaveHappened bool
	// The error of the last attempt.
	Cause error
}

func (err *Deadline) Error() string {
	if err.MayHaveHappened {
		return "The time was over before there was an answer; it may have taken effect."
	}
	return "The time was over before there was an answer; nothing was done."
}

func (err *Deadline) Unwrap() []error {
	if err.Cause == nil {
		return []error{context.DeadlineExceeded}
	}
	return []error{context.DeadlineExceeded, err.Cause}
}

// isFinal: asking again would get the same answer.
func isFinal(err error) bool {
	var problem *Problem
	if errors.As(err, &problem) {
		return !nothingDone(problem) && !isUnknown(err)
	}
	var unreachable *Unreachable
	return !errors.As(err, &unreachable)
}

// isUnknown: it may have taken effect. Behind a proxy's 502, 503 or 504 anything may have happened.
func isUnknown(err error) bool {
	var problem *Problem
	if errors.As(err, &problem) {
		return !nothingDone(problem) && problem.Status >= 502 && problem.Status <= 504
	}
	return true
}

// nothingDone: the service did nothing, and may do it later.
func nothingDone(problem *Problem) bool {
	switch problem.Code() {
	case "overloaded", "unavailable", "too-many-requests", "storage-full", "expired", "request-timeout", "status/429":
		return true
	}
	return false
}

// pause is what the service asks for and a little more, so that its clients do not come at once; or twice as long each time.
func pause(err error, attempts int) time.Duration {
	var problem *Problem
	if errors.As(err, &problem) && problem.RetryAfter != nil {
		return time.Duration((*problem.RetryAfter + rand.Float64()*0.1) * float64(time.Second))
	}
	wait := min(backOffMax, backOffFirst<<min(attempts, 10))
	return wait/2 + rand.N(wait/2)
}

// sleep waits, or gives the context's error before.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retrying attempts until one is answered, the answer is final, or the context ends. once: one that may have happened can be sent again.
func retrying[T any](ctx context.Context, once bool, attempt func() (T, error)) (T, error) {
	var none T
	mayHaveHappened := false
	for attempts := 0; ; attempts++ {
		answer, err := attempt()
		ended := ctx.Err()
		switch {
		case err == nil:
			return answer, nil
		case errors.Is(ended, context.Canceled):
			return none, ended
		case ended == nil && isFinal(err):
			return none, err
		}
		mayHaveHappened = mayHaveHappened || ended != nil || isUnknown(err)
		if ended == nil && mayHaveHappened && !once {
			return none, err
		}
		wait := pause(err, attempts)
		end, isSet := ctx.Deadline()
		if ended != nil || isSet && time.Until(end) <= wait || errors.Is(sleep(ctx, wait), context.DeadlineExceeded) {
			return none, &Deadline{mayHaveHappened, err}
		}
	}
}
