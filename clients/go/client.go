// Package throng is a client of a service on Throng: retries under one key, event streams that go on after a cut, batches over a WebSocket.
package throng

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// Without a sign of life for so long a stream is opened anew; the service gives one each 15 s.
	silenceMax = 45 * time.Second
	timeout    = 30 * time.Second
)

// Settings of a client. The zero value is fine.
type Settings struct {
	// Shown as `Authorization: Bearer`, if it is not empty; asked for each attempt.
	Token func(context.Context) (string, error)
	// Until a request fails, with all its attempts, where its context has no deadline; 30 s unless said.
	Timeout time.Duration
	// Of TLS and connections; http.DefaultTransport unless said.
	Transport http.RoundTripper
}

// Client is a client of one service. Goroutines may share it.
//
// The deadline of a context ends a request with all its attempts, and the service is told of it. Cancelling a context ends it at once; what was
// sent may take effect all the same.
type Client struct {
	url      string
	settings Settings
	http     http.Client
}

// New makes a client of the service at a URL. It connects with the first request.
func New(address string, settings Settings) (*Client, error) {
	parts, err := url.Parse(address)
	if err != nil || parts.Host == "" || parts.Scheme != "http" && parts.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of a service; expected http:// or https://, and a host", address)
	}
	if settings.Timeout == 0 {
		settings.Timeout = timeout
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{strings.TrimRight(address, "/"), settings, http.Client{Transport: settings.Transport, CheckRedirect: stay}}, nil
}

// Option is of a command.
type Option func(*options)

type options struct {
	key         string
	traceparent string
}

// Key names a command: under one key it takes effect once. Without one the client makes one, and keeps it over all attempts.
func Key(key string) Option { return func(to *options) { to.key = key } }

// NoKey is for actors and for routes without a key: nothing is sent again that may have taken effect.
func NoKey() Option { return Key("") }

// Traceparent is a W3C trace context.
func Traceparent(trace string) Option { return func(to *options) { to.traceparent = trace } }

// Command runs a command; gives its reply. A nil body is an empty object.
func (client *Client) Command(ctx context.Context, kind, id, command string, body any, options ...Option) (json.RawMessage, error) {
	return client.Request(ctx, http.MethodPost, path(kind, id, command), body, options...)
}

// Query asks a query, "view" among them. Arguments are a struct, a map or nil.
func (client *Client) Query(ctx context.Context, kind, id, query string, arguments any) (json.RawMessage, error) {
	route := path(kind, id, query)
	if query == "view" {
		route = path(kind, id)
	}
	fields, err := texts(arguments)
	if err != nil {
		return nil, err
	}
	return client.Request(ctx, http.MethodGet, route+search(fields), nil)
}

// Page is a part of a list: so many after an id or a sequence number. The zero value is the first.
type Page struct {
	After string
	Limit int
}

func (page Page) search() string {
	fields := url.Values{}
	if page.After != "" {
		fields.Set("after", page.After)
	}
	if page.Limit != 0 {
		fields.Set("limit", strconv.Itoa(page.Limit))
	}
	return search(fields)
}

// History is a page of an entity's events. Next is where the one after it begins.
type History[P any] struct {
	Events []Event[P] `json:"events"`
	Next   *uint64    `json:"next"`
}

// Entities is a page of the entities of a kind. Next is where the one after it begins.
type Entities struct {
	Entities []struct {
		ID  string `json:"id"`
		Seq uint64 `json:"seq"`
	} `json:"entities"`
	Next *string `json:"next"`
}

// History gives a page of an entity's events, after a sequence number.
func (client *Client) History(ctx context.Context, kind, id string, page Page) (History[json.RawMessage], error) {
	return As[History[json.RawMessage]](client.Request(ctx, http.MethodGet, path(kind, id, "events")+page.search(), nil))
}

// List gives a page of the entities of a kind, in the order of their ids.
func (client *Client) List(ctx context.Context, kind string, page Page) (Entities, error) {
	return As[Entities](client.Request(ctx, http.MethodGet, path(kind)+page.search(), nil))
}

// Request asks any route of the service; gives its answer as JSON. A GET has no body and no key.
func (client *Client) Request(ctx context.Context, method, path string, body any, own ...Option) (json.RawMessage, error) {
	reads := method == http.MethodGet
	to, header := with(own), http.Header{}
	var content []byte
	if !reads {
		var err error
		if content, err = written(body); err != nil {
			return nil, err
		}
		header.Set("Content-Type", "application/json")
		if to.key != "" {
			header.Set("Idempotency-Key", to.key)
		}
	}
	if to.traceparent != "" {
		header.Set("traceparent", to.traceparent)
	}
	end, isTold := ctx.Deadline()
	ctx, cancel := client.limited(ctx)
	defer cancel()
	return retrying(ctx, reads || to.key != "", func() (json.RawMessage, error) {
		if isTold {
			header.Set("Request-Timeout", fmt.Sprintf("%dms", milliseconds(end)))
		}
		response, err := client.send(ctx, method, path, header, content)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, &Unreachable{err}
		}
		return answer, nil
	})
}

// Events gives what happens to an entity, after a cursor or the sequence number of an event, or from its first: "".
//
// It goes on forever, over restarts of the service, each event once. An error is the last of it. Leave the loop or cancel the context to end it.
func (client *Client) Events(ctx context.Context, kind, id, after string) iter.Seq2[Event[json.RawMessage], error] {
	return followed(ctx, func(yield func(Event[json.RawMessage]) bool) error {
		header := http.Header{"Accept": {"text/event-stream"}}
		if after != "" {
			header.Set("Last-Event-ID", after)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		silence := time.AfterFunc(silenceMax, cancel)
		defer silence.Stop()
		response, err := client.send(ctx, http.MethodGet, path(kind, id, "events"), header, nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for fields := map[string]string{}; ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return &Unreachable{err}
			}
			silence.Reset(silenceMax)
			if name, value, isField := strings.Cut(strings.TrimRight(line, "\r\n"), ": "); isField {
				fields[name] = value
				continue
			}
			if fields["id"] != "" && fields["data"] != "" {
				event, err := As[Event[json.RawMessage]]([]byte(fields["data"]), nil)
				if err != nil {
					return err
				}
				after, event.Cursor = fields["id"], fields["id"]
				if !yield(event) {
					return nil
				}
			}
			clear(fields)
		}
	})
}

// Socket is a WebSocket for many commands at a time, and for what happens to a whole kind. It opens with the first request.
func (client *Client) Socket() *Socket {
	socket := Socket{client: client, free: make(chan struct{}, 1)}
	socket.free <- struct{}{}
	return &socket
}

// limited ends a request that its caller gave no deadline.
func (client *Client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, isSet := ctx.Deadline(); isSet {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, client.settings.Timeout)
}

func (client *Client) token(ctx context.Context) (string, error) {
	if client.settings.Token == nil {
		return "", nil
	}
	return client.settings.Token(ctx)
}

// send gives an answer that is none of a problem; its body is to be closed.
func (client *Client) send(ctx context.Context, method, path string, header http.Header, content []byte) (*http.Response, error) {
	token, err := client.token(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, client.url+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.http.Do(request)
	if err != nil {
		return nil, &Unreachable{err}
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, &Unreachable{err}
	}
	return nil, problemOf(response.StatusCode, body, response.Header.Get("Retry-After"))
}

func milliseconds(end time.Time) int64 { return max(1, time.Until(end).Milliseconds()) }

func path(parts ...string) string {
	route := "/api"
	for _, part := range parts {
		route += "/" + url.PathEscape(part)
	}
	return route
}

func search(fields url.Values) string {
	if len(fields) == 0 {
		return ""
	}
	return "?" + fields.Encode()
}

// texts are the fields of a query string: as JSON has them, where they are no text.
func texts(arguments any) (url.Values, error) {
	content, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	fields, err := As[map[string]json.RawMessage](content, nil)
	given := url.Values{}
	for name, value := range fields {
		text := string(value)
		if text == "null" || json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		if text != "null" {
			given.Set(name, text)
		}
	}
	return given, err
}
