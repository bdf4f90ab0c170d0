package storage

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	suite "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"
)

// stored stands before every value that the code under test writes.
const stored = "stored:"

var podCodec = newCodec()

func newCodec() runtime.Codec {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	return apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
}

// backend is what the tests need of Kubernetes' storage code, whose own type has no name outside its package.
type backend interface {
	storage.Interface
	CompactRevision() int64
	EnableResourceSizeEstimation(storage.KeysFunc) error
}

// world is one fresh server with Kubernetes' storage code on it.
type world struct {
	backend
	client      *kubernetes.Client
	reads       *suite.KVRecorder
	lists       *suite.KubernetesRecorder
	codec       runtime.Codec
	transformer *exchangeable
}

// newWorld starts a server and puts the storage code on it.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, podCodec, suite.NewPrefixTransformer([]byte(stored), false))
}

func newWorldWith(t *testing.T, codec runtime.Codec, transformer value.Transformer) *world {
	t.Helper()
	w := &world{client: freshClient(t), codec: codec, transformer: &exchangeable{}}
	w.transformer.set(transformer)
	record(w)
	compactor := etcd3.NewCompactor(w.client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	leases := etcd3.NewDefaultLeaseManagerConfig()
	// The tests wait at most 30 s for anything.
	leases.ReuseDurationSeconds = 1
	versioner := storage.APIObjectVersioner{}
	made, err := etcd3.New(w.client, compactor, codec,
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} },
		"", "/pods/", schema.GroupResource{Resource: "pods"}, w.transformer, leases,
		etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	w.backend = made
	return w
}

// compact moves the compaction as an API server does, and waits until the storage code has seen it where it watches it.
func (w *world) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	revision, err := w.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	// The first try learns the version of the compaction's key, unless there is none yet.
	version, _, _, err := etcd3.Compact(ctx, w.client.Client, 0, int64(revision))
	if err != nil {
		_, _, _, err = etcd3.Compact(ctx, w.client.Client, version, int64(revision))
	}
	if err != nil {
		t.Fatal(err)
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		return
	}
	for begun := time.Now(); w.CompactRevision() != int64(revision); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("the compaction at %d was not seen: it stands at %d", revision, w.CompactRevision())
		}
	}
}

// increaseRevision writes what no test looks at.
func (w *world) increaseRevision(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	answer, err := w.client.KV.Put(ctx, "elsewhere", "x")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// validStored checks what stands in the server under a key: an object without the fields that belong to an answer.
func (w *world) validStored(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	answer, err := w.client.KV.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) != 1 {
		t.Fatalf("%d keys are stored as %s, expected 1", len(answer.Kvs), key)
	}
	object, err := runtime.Decode(w.codec, answer.Kvs[0].Value[len(stored):])
	if err != nil {
		t.Fatal(err)
	}
	if pod := object.(*example.Pod); pod.ResourceVersion != "" || pod.SelfLink != "" {
		t.Errorf("%s is stored with resource version %q and link %q", key, pod.ResourceVersion, pod.SelfLink)
	}
}

// keys lists the keys of all pods in the server.
func (w *world) keys(ctx context.Context) ([]string, error) {
	answer, err := w.client.KV.Get(ctx, "/pods/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, entry := range answer.Kvs {
		keys = append(keys, string(entry.Key))
	}
	return keys, nil
}

// callsOf gives the check of how many reads a list may cost: as many objects as were decoded, and as many pages as
// doubling from the first page size takes, up to 10,000.
func (w *world) calls(t *testing.T, pageSize, objects uint64) {
	t.Helper()
	if reads := w.transformer.prefix().GetReadsAndReset(); reads != objects {
		t.Errorf("%d objects were read, expected %d", reads, objects)
	}
	expected := uint64(1)
	if pageSize != 0 {
		page := pageSize
		for got := uint64(1); got < objects; got += page {
			page = min(page*2, 10_000)
			expected++
		}
	}
	if reads := w.readCalls(); reads != expected {
		t.Fatalf("%d reads were sent, expected %d", reads, expected)
	}
}

// exchangeable is a transformer that a test may exchange while the storage code runs.
type exchangeable struct {
	current atomic.Pointer[value.Transformer]
}

func (e *exchangeable) get() value.Transformer { return *e.current.Load() }

func (e *exchangeable) set(transformer value.Transformer) { e.current.Store(&transformer) }

func (e *exchangeable) prefix() *suite.PrefixTransformer { return e.get().(*suite.PrefixTransformer) }

func (e *exchangeable) TransformFromStorage(ctx context.Context, data []byte, context value.Context) ([]byte, bool, error) {
	return e.get().TransformFromStorage(ctx, data, context)
}

func (e *exchangeable) TransformToStorage(ctx context.Context, data []byte, context value.Context) ([]byte, error) {
	return e.get().TransformToStorage(ctx, data, context)
}

// UpdatePrefixTransformer puts in what the test makes of a copy of the transformer, until the returned call.
func (w *world) UpdatePrefixTransformer(modifier suite.PrefixTransformerModifier) func() {
	before := w.transformer.get()
	changed := *w.transformer.prefix()
	w.transformer.set(modifier(&changed))
	return func() { w.transformer.set(before) }
}
