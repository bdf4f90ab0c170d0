package storage

import (
	"context"
	"io"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/grpclog"
	"quantykube/tests/peers/server"
)

func init() {
	// gRPC writes every lost connection, and each test ends with one.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// freshClient starts a server on an empty folder and gives a client of it. Some tests wait for periodic progress: once a
// second is what they were written for.
func freshClient(t *testing.T) *kubernetes.Client {
	t.Helper()
	fresh := server.Fresh(t, "--watch-progress-notify-interval=1s")
	client, err := kubernetes.New(clientv3.Config{Endpoints: []string{fresh.URL}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		head, err := client.KV.Get(ctx, "nothing")
		cancel()
		if err == nil {
			// Several tests count revisions from the first.
			if head.Header.Revision != 1 {
				t.Fatalf("a fresh server is at revision %d, expected 1", head.Header.Revision)
			}
			return client
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
}
