// Answers each request with what Go's net/http reads of it. Prints its port first.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

func handle(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var named struct {
		Model *string `json:"model"`
	}
	if json.Unmarshal(body, &named) != nil {
		named.Model = nil
	}
	header := func(name string) *string {
		if values := r.Header.Values(name); len(values) > 0 {
			return &values[0]
		}
		return nil
	}
	report, _ := json.Marshal(map[string]any{
		"method": r.Method, "path": r.URL.Path, "query": r.URL.RawQuery, "host": r.Host,
		"role": header("X-Role"), "user": header("X-User"), "model": named.Model,
		"credential": header("Authorization"), "apiKey": header("X-Api-Key"),
	})
	w.Header().Set("Content-Type", "application/json")
	w.Write(report)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(handle)))
}
