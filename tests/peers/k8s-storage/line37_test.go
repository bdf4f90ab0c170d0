//go:build k8s137

package storage

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	support "k8s.io/apiserver/pkg/storage/feature"
	suite "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
)

// record counts what is read from the server.
func record(w *world) {
	w.lists = suite.NewKubernetesRecorder(w.client.Kubernetes)
	w.reads = suite.NewKVRecorder(w.client.KV, w.lists)
	w.client.KV, w.client.Kubernetes = w.reads, w.lists
}

func (w *world) readCalls() uint64 {
	return w.reads.GetReadsAndReset() + w.reads.GetStreamReadsAndReset()
}

// UpdateTransformer puts in what the test makes of the transformer, until the returned call.
func (w *world) UpdateTransformer(modifier suite.TransformerModifier) func() {
	before := w.transformer.get()
	w.transformer.set(modifier(before))
	return func() { w.transformer.set(before) }
}

// flipped reads every value as damaged while it is on.
type flipped struct {
	value.Transformer
	on atomic.Bool
}

func (f *flipped) TransformFromStorage(ctx context.Context, data []byte, context value.Context) ([]byte, bool, error) {
	if f.on.Load() {
		return nil, false, errors.New("bits flipped")
	}
	return f.Transformer.TransformFromStorage(ctx, data, context)
}

// undecodable decodes nothing while it is on.
type undecodable struct {
	runtime.Codec
	on atomic.Bool
}

func (u *undecodable) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if u.on.Load() {
		return nil, nil, errors.New("not decodable")
	}
	return u.Codec.Decode(data, defaults, into)
}

// damaged is the storage code's own error for a value that cannot be read; its type has no name outside.
func damaged(ctx context.Context) error {
	broken := &flipped{}
	broken.on.Store(true)
	_, _, err := etcd3.WithCorruptObjErrorHandlingTransformer(broken).TransformFromStorage(ctx, nil, nil)
	return err
}

func prefixed() value.Transformer { return suite.NewPrefixTransformer([]byte(stored), false) }

// streamed runs a test with lists in streams and without. A server that has no streams says so, and is then asked in
// pages for the next minutes: that is forgotten before and after.
func streamed(t *testing.T, run func(t *testing.T)) {
	for name, on := range map[string]bool{"in streams": true, "in pages": false} {
		t.Run(name, func(t *testing.T) {
			setGate(t, features.EtcdRangeStream, on)
			before := support.DefaultFeatureSupportChecker
			support.DefaultFeatureSupportChecker = support.NewDefaultFeatureSupportChecker()
			t.Cleanup(func() { support.DefaultFeatureSupportChecker = before })
			run(t)
		})
	}
}

// ofThisLine are the tests whose calls differ between 1.36 and 1.37, and those that 1.37 has more.
var ofThisLine = []entry{
	{"RunTestList", func(ctx context.Context, t *testing.T) {
		streamed(t, func(t *testing.T) {
			w := newWorld(t)
			suite.RunTestList(ctx, t, w, w.compact, false, w.lists)
			t.Logf("%d lists were streams", w.reads.GetStreamReadsAndReset())
		})
	}},
	{"RunTestConsistentList", func(ctx context.Context, t *testing.T) {
		streamed(t, func(t *testing.T) {
			w := newWorld(t)
			suite.RunTestConsistentList(ctx, t, w, w.increaseRevision, false, true, false)
		})
	}},
	{"RunTestWatchWithUnsafeDelete", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, true)
		suite.RunTestWatchWithUnsafeDelete(ctx, t, newWorld(t), damaged(ctx))
	}},
	{"RunTestGetListWithErrorAggregation", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, true)
		w := newWorld(t)
		wrapped := etcd3.NewStoreWithUnsafeCorruptObjectDeletion(w, schema.GroupResource{Resource: "pods"})
		suite.RunTestGetListWithErrorAggregation(ctx, t, struct {
			storage.Interface
			overridden
		}{wrapped, w}, damaged(ctx))
	}},
	{"RunTestGetListWithoutErrorAggregation", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, false)
		suite.RunTestGetListWithoutErrorAggregation(ctx, t, newWorld(t), damaged(ctx))
	}},
	{"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, true)
		codec := &undecodable{Codec: podCodec}
		w := newWorldWith(t, codec, prefixed())
		suite.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, w, codec.on.Store)
	}},
	{"RunTestDeleteExpectedTransformOrDecodeError", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, true)
		t.Run("transform", func(t *testing.T) {
			transformer := &flipped{Transformer: prefixed()}
			w := newWorldWith(t, podCodec, transformer)
			suite.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, w, transformer.on.Store)
		})
		t.Run("decode", func(t *testing.T) {
			codec := &undecodable{Codec: podCodec}
			w := newWorldWith(t, codec, prefixed())
			suite.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, w, codec.on.Store)
		})
	}},
	{"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError", func(ctx context.Context, t *testing.T) {
		setGate(t, features.AllowUnsafeMalformedObjectDeletion, true)
		suite.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, newWorld(t))
	}},
}

// overridden is what a test needs beside the wrapped storage code.
type overridden interface {
	UpdateTransformer(suite.TransformerModifier) func()
}
