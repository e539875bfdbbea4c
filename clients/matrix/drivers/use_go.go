// net/http: `use_go 1` or `use_go 2` (with prior knowledge, or over TLS).
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const shown = 4000

var client = &http.Client{Transport: transport(), Timeout: 60 * time.Second}

func transport() *http.Transport {
	protocols := new(http.Protocols)
	if os.Args[1] == "2" {
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
	}
	return &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 100}
}

func send(client *http.Client, ask url.Values, address string, scope context.Context) (*http.Response, error) {
	var body io.Reader
	if ask.Has("body") {
		data, err := base64.StdEncoding.DecodeString(ask.Get("body"))
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(scope, ask.Get("method"), address, body)
	if err != nil {
		return nil, err
	}
	for _, line := range ask["header"] {
		name, value, _ := strings.Cut(line, ": ")
		if strings.EqualFold(name, "Accept-Encoding") {
			continue // net/http asks for gzip itself, and unpacks what comes
		}
		request.Header.Set(name, value)
	}
	return client.Do(request)
}

func told(found *http.Response, body []byte) url.Values {
	outcome := url.Values{"status": {fmt.Sprint(found.StatusCode)}, "bytes": {fmt.Sprint(len(body))}, "version": {fmt.Sprintf("%d.%d", found.ProtoMajor, found.ProtoMinor)}}
	if len(body) > shown {
		body = append(append([]byte{}, body[:shown/2]...), body[len(body)-shown/2:]...)
	}
	outcome.Set("body", string(body))
	for name, values := range found.Header {
		for _, value := range values {
			outcome.Add("header", name+": "+value)
		}
	}
	if found.ContentLength >= 0 && found.Header.Get("Content-Length") == "" {
		outcome.Add("header", fmt.Sprintf("Content-Length: %d", found.ContentLength))
	}
	if found.Uncompressed {
		outcome.Add("header", "Content-Encoding: gzip")
	}
	return outcome
}

func ask(client *http.Client, ask url.Values, scope context.Context) (url.Values, error) {
	found, err := send(client, ask, ask.Get("url"), scope)
	if err != nil {
		return nil, err
	}
	defer found.Body.Close()
	body, err := io.ReadAll(found.Body)
	if err != nil {
		return nil, err
	}
	return told(found, body), nil
}

func together(ask url.Values) (url.Values, error) {
	urls := ask["url"]
	statuses, bodies, failed := make([]string, len(urls)), make([]string, len(urls)), make([]error, len(urls))
	var all sync.WaitGroup
	for number, address := range urls {
		all.Add(1)
		go func() {
			defer all.Done()
			found, err := send(client, ask, address, context.Background())
			if err != nil {
				failed[number] = err
				return
			}
			defer found.Body.Close()
			body, err := io.ReadAll(found.Body)
			statuses[number], bodies[number], failed[number] = fmt.Sprint(found.StatusCode), string(body), err
		}()
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return url.Values{"status": statuses, "body": bodies}, nil
}

func stream(ask url.Values) (url.Values, error) {
	scope, cancel := context.WithCancel(context.Background())
	defer cancel()
	found, err := send(client, ask, ask.Get("url"), scope)
	if err != nil {
		return nil, err
	}
	defer found.Body.Close()
	var seen []byte
	piece, until := make([]byte, 65536), ask.Get("until")
	for {
		read, err := found.Body.Read(piece)
		seen = append(seen, piece[:read]...)
		if until != "" && bytes.Contains(seen, []byte(until)) || err == io.EOF {
			return told(found, seen), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// oneWrite ends its sending side with the first write, which is the request.
type oneWrite struct{ *net.TCPConn }

func (connection oneWrite) Write(data []byte) (int, error) {
	written, err := connection.TCPConn.Write(data)
	if err == nil {
		err = connection.CloseWrite()
	}
	return written, err
}

func half(form url.Values) (url.Values, error) {
	own := transport()
	own.DialContext = func(scope context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(scope, network, address)
		if err != nil {
			return nil, err
		}
		return oneWrite{connection.(*net.TCPConn)}, nil
	}
	return ask(&http.Client{Transport: own, Timeout: 60 * time.Second}, form, context.Background())
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		form, err := url.ParseQuery(strings.TrimSuffix(line, "\n"))
		var outcome url.Values
		switch {
		case err != nil:
		case form.Get("do") == "ask":
			outcome, err = ask(client, form, context.Background())
		case form.Get("do") == "together":
			outcome, err = together(form)
		case form.Get("do") == "stream":
			outcome, err = stream(form)
		case form.Get("do") == "half":
			outcome, err = half(form)
		default:
			err = fmt.Errorf("there is no %s", form.Get("do"))
		}
		if err != nil {
			outcome = url.Values{"error": {err.Error()}}
		}
		fmt.Println(outcome.Encode())
	}
}
