// Package storage drives k8s.io/apiserver/pkg/storage/testing, every test of it, through Kubernetes' own storage code
// against a fresh server each: real etcd or quantykube-store, as the environment says.
package storage

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/features"
	suite "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	gates "k8s.io/component-base/featuregate/testing"
)

// entry is one exported test by its name.
type entry struct {
	name string
	run  func(ctx context.Context, t *testing.T)
}

func setGate(t *testing.T, gate featuregate.Feature, on bool) {
	t.Helper()
	gates.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, on)
}

// on makes an entry of a test that needs no more than the storage code.
func on(name string, run func(ctx context.Context, t *testing.T, w *world)) entry {
	return entry{name, func(ctx context.Context, t *testing.T) { run(ctx, t, newWorld(t)) }}
}

// table names every test of the suite that can run on the storage code; complete_test.go compares it with the suite.
var table = []entry{
	on("RunTestCreate", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestCreate(ctx, t, w, w.validStored) }),
	on("RunTestCreateWithTTL", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestCreateWithTTL(ctx, t, w) }),
	on("RunTestCreateWithKeyExist", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestCreateWithKeyExist(ctx, t, w) }),
	on("RunTestGet", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestGet(ctx, t, w) }),
	on("RunTestUnconditionalDelete", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestUnconditionalDelete(ctx, t, w) }),
	on("RunTestConditionalDelete", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestConditionalDelete(ctx, t, w) }),
	on("RunTestDeleteWithSuggestion", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestDeleteWithSuggestion(ctx, t, w) }),
	on("RunTestDeleteWithSuggestionAndConflict", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestDeleteWithSuggestionAndConflict(ctx, t, w)
	}),
	on("RunTestDeleteWithConflict", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestDeleteWithConflict(ctx, t, w) }),
	on("RunTestDeleteWithSuggestionOfDeletedObject", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestDeleteWithSuggestionOfDeletedObject(ctx, t, w)
	}),
	on("RunTestValidateDeletionWithSuggestion", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestValidateDeletionWithSuggestion(ctx, t, w)
	}),
	on("RunTestValidateDeletionWithOnlySuggestionValid", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestValidateDeletionWithOnlySuggestionValid(ctx, t, w)
	}),
	on("RunTestPreconditionalDeleteWithSuggestion", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestPreconditionalDeleteWithSuggestion(ctx, t, w)
	}),
	on("RunTestPreconditionalDeleteWithOnlySuggestionPass", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestPreconditionalDeleteWithOnlySuggestionPass(ctx, t, w)
	}),
	on("RunTestGetListNonRecursive", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestGetListNonRecursive(ctx, t, w.increaseRevision, w)
	}),
	on("RunTestGetListRecursivePrefix", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestGetListRecursivePrefix(ctx, t, w) }),
	on("RunTestListContinuation", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestListContinuation(ctx, t, w, w.calls) }),
	{"RunTestListPaginationRareObject", func(ctx context.Context, t *testing.T) {
		// With this gate a list also reads the compaction's key, which the count does not expect.
		setGate(t, features.ListFromCacheSnapshot, false)
		w := newWorld(t)
		suite.RunTestListPaginationRareObject(ctx, t, w, w.calls)
	}},
	on("RunTestListContinuationWithFilter", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestListContinuationWithFilter(ctx, t, w, w.calls)
	}),
	on("RunTestListInconsistentContinuation", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestListInconsistentContinuation(ctx, t, w, w.compact)
	}),
	on("RunTestListResourceVersionMatch", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestListResourceVersionMatch(ctx, t, w)
	}),
	on("RunTestGuaranteedUpdate", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestGuaranteedUpdate(ctx, t, w, w.validStored)
	}),
	on("RunTestGuaranteedUpdateWithTTL", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestGuaranteedUpdateWithTTL(ctx, t, w)
	}),
	on("RunTestGuaranteedUpdateChecksStoredData", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestGuaranteedUpdateChecksStoredData(ctx, t, w)
	}),
	on("RunTestGuaranteedUpdateWithConflict", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestGuaranteedUpdateWithConflict(ctx, t, w)
	}),
	on("RunTestGuaranteedUpdateWithSuggestionAndConflict", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestGuaranteedUpdateWithSuggestionAndConflict(ctx, t, w)
	}),
	on("RunTestTransformationFailure", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestTransformationFailure(ctx, t, w) }),
	{"RunTestStats", func(ctx context.Context, t *testing.T) {
		for name, sizes := range map[string]bool{"with sizes": true, "without sizes": false} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				if sizes {
					if err := w.EnableResourceSizeEstimation(w.keys); err != nil {
						t.Fatal(err)
					}
				}
				suite.RunTestStats(ctx, t, w, w.codec, w.transformer, sizes)
			})
		}
	}},
	on("RunTestListPaging", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestListPaging(ctx, t, w) }),
	on("RunTestNamespaceScopedList", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestNamespaceScopedList(ctx, t, w) }),
	{"RunTestCompactRevision", func(ctx context.Context, t *testing.T) {
		// The storage code watches the compaction's key with this gate only.
		setGate(t, features.ListFromCacheSnapshot, true)
		w := newWorld(t)
		suite.RunTestCompactRevision(ctx, t, w, w.increaseRevision, w.compact)
	}},
	on("RunTestKeySchema", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestKeySchema(ctx, t, w) }),

	on("RunTestWatch", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestWatch(ctx, t, w) }),
	on("RunTestWatchFromZero", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestWatchFromZero(ctx, t, w, w.compact) }),
	on("RunTestDeleteTriggerWatch", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestDeleteTriggerWatch(ctx, t, w) }),
	on("RunTestWatchFromNonZero", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestWatchFromNonZero(ctx, t, w) }),
	on("RunTestDelayedWatchDelivery", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestDelayedWatchDelivery(ctx, t, w) }),
	on("RunTestWatchError", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestWatchError(ctx, t, w) }),
	on("RunTestWatchContextCancel", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestWatchContextCancel(ctx, t, w) }),
	on("RunTestWatcherTimeout", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestWatcherTimeout(ctx, t, w) }),
	on("RunTestWatchDeleteEventObjectHaveLatestRV", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestWatchDeleteEventObjectHaveLatestRV(ctx, t, w)
	}),
	on("RunTestWatchInitializationSignal", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunTestWatchInitializationSignal(ctx, t, w)
	}),
	on("RunOptionalTestProgressNotify", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunOptionalTestProgressNotify(ctx, t, w, w.increaseRevision)
	}),
	on("RunTestClusterScopedWatch", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestClusterScopedWatch(ctx, t, w) }),
	on("RunTestNamespaceScopedWatch", func(ctx context.Context, t *testing.T, w *world) { suite.RunTestNamespaceScopedWatch(ctx, t, w) }),
	on("RunTestWatchDispatchBookmarkEvents", func(ctx context.Context, t *testing.T, w *world) {
		// Bookmarks are the watch cache's; below it there must be none.
		suite.RunTestWatchDispatchBookmarkEvents(ctx, t, w, false)
	}),
	on("RunSendInitialEventsBackwardCompatibility", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunSendInitialEventsBackwardCompatibility(ctx, t, w)
	}),
	{"RunWatchSemantics", func(ctx context.Context, t *testing.T) {
		for name, concurrent := range map[string]bool{"decoded in turn": false, "decoded at once": true} {
			t.Run(name, func(t *testing.T) {
				setGate(t, features.ConcurrentWatchObjectDecode, concurrent)
				suite.RunWatchSemantics(ctx, t, newWorld(t))
			})
		}
	}},
	on("RunWatchSemanticInitialEventsExtended", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunWatchSemanticInitialEventsExtended(ctx, t, w)
	}),
	on("RunWatchListMatchSingle", func(ctx context.Context, t *testing.T, w *world) { suite.RunWatchListMatchSingle(ctx, t, w) }),
	on("RunWatchErrorIsBlockingFurtherEvents", func(ctx context.Context, t *testing.T, w *world) {
		suite.RunWatchErrorIsBlockingFurtherEvents(ctx, t, w)
	}),
}

// leftOut are exported functions of the suite that are not run, each with the reason.
var leftOut = map[string]string{
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": "only the watch cache sends these bookmarks: it fails on real etcd, too",
	"RunBenchmarkStoreListCreate":                             "a benchmark, no test",
	"RunBenchmarkWriteThroughput":                             "a benchmark, no test",
	"RunBenchmarkStoreList":                                   "a benchmark, no test",
	"RunBenchmarkStoreStats":                                  "a benchmark, no test",
}

func TestStorage(t *testing.T) {
	for _, entry := range append(append([]entry{}, table...), ofThisLine...) {
		t.Run(entry.name, func(t *testing.T) { entry.run(context.Background(), t) })
	}
}
