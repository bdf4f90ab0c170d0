//go:build !k8s137

package storage

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/etcd3"
	suite "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
)

// record counts what is read from the server.
func record(w *world) {
	w.reads = suite.NewKVRecorder(w.client.KV)
	w.lists = suite.NewKubernetesRecorder(w.client.Kubernetes)
	w.client.KV, w.client.Kubernetes = w.reads, w.lists
}

func (w *world) readCalls() uint64 { return w.reads.GetReadsAndReset() }

// flipped reads every value as damaged.
type flipped struct{ value.Transformer }

func (flipped) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, true, errors.New("bits flipped")
}

// CorruptTransformer makes every stored value unreadable, until the returned call.
func (w *world) CorruptTransformer() func() {
	before := w.transformer.get()
	w.transformer.set(etcd3.WithCorruptObjErrorHandlingTransformer(flipped{before}))
	return func() { w.transformer.set(before) }
}

// ofThisLine are the tests whose calls differ between 1.36 and 1.37.
var ofThisLine = []entry{
	{"RunTestList", func(ctx context.Context, t *testing.T) {
		w := newWorld(t)
		suite.RunTestList(ctx, t, w, w.compact, false, w.lists)
	}},
	{"RunTestConsistentList", func(ctx context.Context, t *testing.T) {
		w := newWorld(t)
		suite.RunTestConsistentList(ctx, t, w, w.increaseRevision, false, true, false)
	}},
	{"RunTestWatchWithUnsafeDelete", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, true)
		suite.RunTestWatchWithUnsafeDelete(ctx, t, newWorld(t))
	}},
}
