package throng

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// Of a frame at most: the service takes 2 MiB and 10,000 messages.
	frameBytes    = 1_000_000
	frameMessages = 1_000
	// A socket may take so long to open, for those who follow.
	openMax = 30 * time.Second
)

// Call is a command of a batch.
type Call struct {
	Kind, ID, Command string
	Body              any
	Options           []Option
}

// Outcome is a reply, or the error that the command alone would have had.
type Outcome struct {
	Reply json.RawMessage
	Err   error
}

// Socket has commands, queries and events over one connection. It opens with the first request, and again when it was cut. Goroutines may share it.
type Socket struct {
	client *Client
	// Holds a token while no one has what follows. It is taken while a connection opens: others wait for the same one.
	free     chan struct{}
	link     *link
	isClosed bool
}

// Close ends it; what waits for an answer fails.
func (socket *Socket) Close() {
	<-socket.free
	defer func() { socket.free <- struct{}{} }()
	socket.isClosed = true
	if socket.link != nil {
		socket.link.connection.CloseNow()
	}
}

// Command runs a command; gives its reply.
func (socket *Socket) Command(ctx context.Context, kind, id, command string, body any, options ...Option) (json.RawMessage, error) {
	return only(socket.Batch(ctx, []Call{{kind, id, command, body, options}}))
}

// Batch runs commands in their order, many in a frame. Each has an outcome, unless there is an error of all.
func (socket *Socket) Batch(ctx context.Context, calls []Call) ([]Outcome, error) {
	once := true
	asked := make([]message, len(calls))
	for at, call := range calls {
		body, err := written(call.Body)
		if err != nil {
			return nil, err
		}
		to := with(call.Options)
		once = once && to.key != ""
		asked[at] = message{
			Type: "command", Kind: call.Kind, Entity: &call.ID, Command: call.Command, Body: body, Key: to.key, Traceparent: to.traceparent,
		}
	}
	return socket.ask(ctx, asked, once)
}

// Query asks a query, "view" among them. It shows all commands sent before it.
func (socket *Socket) Query(ctx context.Context, kind, id, query string, arguments any) (json.RawMessage, error) {
	fields, err := written(arguments)
	if err != nil {
		return nil, err
	}
	return only(socket.ask(ctx, []message{{Type: "query", Kind: kind, Entity: &id, Query: query, Arguments: fields}}, true))
}

// Subscription is what is followed.
type Subscription struct {
	Kind string
	// Without an id all of the kind.
	ID string
	// A cursor, or "start". Without it an entity's events begin at its first, a kind's at the present.
	After string
	// So many events are on their way at most; 100 unless said.
	Credit int
}

// Follow gives what happens to an entity or to all of a kind, forever, over cuts of the connection.
//
// An error is the last of it. Leave the loop or cancel the context to end it. Of a kind, several events may have one cursor.
func (socket *Socket) Follow(ctx context.Context, to Subscription) iter.Seq2[Event[json.RawMessage], error] {
	if to.Credit == 0 {
		to.Credit = 100
	}
	asked := message{Type: "subscribe", Kind: to.Kind, Credit: to.Credit, After: to.After}
	if to.ID != "" {
		asked.Entity = &to.ID
	}
	return followed(ctx, func(yield func(Event[json.RawMessage]) bool) error {
		opening, cancel := context.WithTimeout(ctx, openMax)
		defer cancel()
		link, err := socket.open(opening)
		if err != nil {
			return err
		}
		return link.follow(ctx, &asked, yield)
	})
}

func only(outcomes []Outcome, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return outcomes[0].Reply, outcomes[0].Err
}

// ask asks until each has an outcome that asking again would not change.
func (socket *Socket) ask(ctx context.Context, asked []message, once bool) ([]Outcome, error) {
	end, isTold := ctx.Deadline()
	ctx, cancel := socket.client.limited(ctx)
	defer cancel()
	outcomes := make([]Outcome, len(asked))
	leftOver := make([]int, len(asked))
	for at := range leftOver {
		leftOver[at] = at
	}
	return retrying(ctx, once, func() ([]Outcome, error) {
		link, err := socket.open(ctx)
		if err != nil {
			return nil, err
		}
		messages := make([]message, len(leftOver))
		for number, at := range leftOver {
			messages[number] = asked[at]
			if isTold {
				messages[number].Timeout = milliseconds(end)
			}
		}
		answers := link.ask(ctx, messages)
		var again error
		var unanswered []int
		for number, at := range leftOver {
			outcomes[at] = answers[number]
			if err := outcomes[at].Err; err != nil && !isFinal(err) {
				again, unanswered = err, append(unanswered, at)
			}
		}
		leftOver = unanswered
		return outcomes, again
	})
}

func (socket *Socket) open(ctx context.Context) (*link, error) {
	select {
	case <-socket.free:
	case <-ctx.Done():
		return nil, &Unreachable{ctx.Err()}
	}
	defer func() { socket.free <- struct{}{} }()
	if socket.isClosed {
		return nil, errors.New("the socket was closed")
	}
	if socket.link != nil && !socket.link.isOver() {
		return socket.link, nil
	}
	token, err := socket.client.token(ctx)
	if err != nil {
		return nil, err
	}
	protocols := []string{"throng.v1"}
	if token != "" {
		protocols = append(protocols, "throng.bearer."+base64.RawURLEncoding.EncodeToString([]byte(token)))
	}
	options := websocket.DialOptions{Subprotocols: protocols, HTTPClient: &socket.client.http}
	connection, response, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(socket.client.url, "http")+"/api/ws", &options)
	if err != nil {
		if response == nil || response.StatusCode < 300 {
			return nil, &Unreachable{err}
		}
		body, _ := io.ReadAll(response.Body)
		return nil, problemOf(response.StatusCode, body, response.Header.Get("Retry-After"))
	}
	connection.SetReadLimit(-1)
	socket.link = &link{connection: connection, next: 1, told: map[uint64]chan<- message{}, over: make(chan struct{})}
	go socket.link.read()
	return socket.link, nil
}

// message of either side.
type message struct {
	Type        string                   `json:"type"`
	ID          uint64                   `json:"id"`
	Kind        string                   `json:"kind,omitempty"`
	Entity      *string                  `json:"entity,omitempty"`
	Command     string                   `json:"command,omitempty"`
	Query       string                   `json:"query,omitempty"`
	Body        json.RawMessage          `json:"body,omitempty"`
	Arguments   json.RawMessage          `json:"arguments,omitempty"`
	Key         string                   `json:"key,omitempty"`
	Traceparent string                   `json:"traceparent,omitempty"`
	Timeout     int64                    `json:"timeout_ms,omitempty"`
	Credit      int                      `json:"credit,omitempty"`
	After       string                   `json:"after,omitempty"`
	Problem     *Problem                 `json:"problem,omitempty"`
	Events      []Event[json.RawMessage] `json:"events,omitempty"`
	Cursor      string                   `json:"cursor,omitempty"`
}

// link is one connection, read by a goroutine of its own.
type link struct {
	connection *websocket.Conn
	lock       sync.Mutex
	next       uint64
	// Channels have room for all that the service may say: an answer for each question, or the events that credit was granted for.
	told map[uint64]chan<- message
	// Closed once the connection has ended.
	over chan struct{}
}

func (link *link) isOver() bool {
	select {
	case <-link.over:
		return true
	default:
		return false
	}
}

// ask gives an outcome for each question.
func (link *link) ask(ctx context.Context, messages []message) []Outcome {
	told := make(chan message, len(messages))
	first := link.name(told, len(messages))
	defer link.forget(first, len(messages))
	outcomes := make([]Outcome, len(messages))
	for at := range messages {
		messages[at].ID = first + uint64(at)
		outcomes[at].Err = &Unreachable{errors.New("the socket was cut")}
	}
	if err := link.send(ctx, messages); err != nil {
		return outcomes
	}
	take := func(answer message) {
		outcomes[answer.ID-first] = Outcome{Reply: answer.Body}
		if answer.Problem != nil {
			outcomes[answer.ID-first] = Outcome{Err: answer.Problem}
		}
	}
	for range messages {
		select {
		case answer := <-told:
			take(answer)
		case <-link.over:
			for len(told) > 0 {
				take(<-told)
			}
			return outcomes
		case <-ctx.Done():
			return outcomes
		}
	}
	return outcomes
}

// follow gives the events of a subscription, and grants credit as they are taken. Without an error the loop was left.
func (link *link) follow(ctx context.Context, asked *message, yield func(Event[json.RawMessage]) bool) error {
	told := make(chan message, asked.Credit+1)
	asked.ID = link.name(told, 1)
	defer link.forget(asked.ID, 1)
	if err := link.send(ctx, []message{*asked}); err != nil {
		return err
	}
	isOpen := true
	defer func() {
		if isOpen && !link.isOver() {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), openMax)
			defer cancel()
			_ = link.send(ending, []message{{Type: "unsubscribe", ID: asked.ID}})
		}
	}()
	for taken := 0; ; {
		var news message
		select {
		case news = <-told:
		case <-link.over:
			return &Unreachable{errors.New("the socket was cut")}
		case <-ctx.Done():
			return ctx.Err()
		}
		if news.Problem != nil {
			isOpen = false
			if news.Problem.Code() == "slow-reader" {
				return &Unreachable{news.Problem}
			}
			return news.Problem
		}
		for at, event := range news.Events {
			event.Cursor = fmt.Sprintf("%d@%s", event.Seq, event.Position)
			if asked.Entity == nil {
				// That before them begins no later than after each but the last.
				event.Cursor = asked.After
				if at+1 == len(news.Events) {
					event.Cursor = news.Cursor
				}
			}
			if !yield(event) {
				return nil
			}
		}
		asked.After = news.Cursor
		if taken += len(news.Events); taken*2 >= asked.Credit {
			if err := link.send(ctx, []message{{Type: "credit", ID: asked.ID, Credit: taken}}); err != nil {
				return err
			}
			taken = 0
		}
	}
}

func (link *link) name(told chan<- message, count int) uint64 {
	link.lock.Lock()
	defer link.lock.Unlock()
	first := link.next
	link.next += uint64(count)
	for id := first; id < link.next; id++ {
		link.told[id] = told
	}
	return first
}

func (link *link) forget(first uint64, count int) {
	link.lock.Lock()
	defer link.lock.Unlock()
	for id := first; id < first+uint64(count); id++ {
		delete(link.told, id)
	}
}

// send writes messages in frames. A context that ends within a frame ends the connection.
func (link *link) send(ctx context.Context, messages []message) error {
	var frame []byte
	count := 0
	flush := func() error {
		if err := link.connection.Write(ctx, websocket.MessageText, append(frame, ']')); err != nil {
			return &Unreachable{err}
		}
		frame, count = nil, 0
		return nil
	}
	for _, message := range messages {
		text, err := json.Marshal(message)
		if err != nil {
			return err
		}
		if count > 0 && (len(frame)+len(text) > frameBytes || count == frameMessages) {
			if err := flush(); err != nil {
				return err
			}
		}
		separator := byte(',')
		if count == 0 {
			separator = '['
		}
		frame, count = append(append(frame, separator), text...), count+1
	}
	return flush()
}

func (link *link) read() {
	defer close(link.over)
	defer link.connection.CloseNow()
	for {
		_, text, err := link.connection.Read(context.Background())
		if err != nil {
			return
		}
		messages, err := As[[]message](text, nil)
		if err != nil {
			single, err := As[message](text, nil)
			if err != nil {
				return
			}
			messages = []message{single}
		}
		for _, message := range messages {
			// Of other kinds nothing is to be known.
			if message.Problem == nil && message.Type != "reply" && message.Type != "events" {
				continue
			}
			link.lock.Lock()
			told := link.told[message.ID]
			link.lock.Unlock()
			select {
			case told <- message:
			default:
				if told != nil {
					return // It said more than it was granted.
				}
			}
		}
	}
}
