// Package robustness drives etcd's own robustness traffic against a server that is killed now and then, and lets etcd's
// validators judge what its clients saw: that all answers fit one order of all requests, that every watch was told
// everything in order and nothing twice, and that reads of the past show what was there.
package robustness

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/time/rate"
	"quantykube/tests/peers/server"
)

var seconds = flag.Int("seconds", 60, "how long all traffic together lasts, validation not counted")

// roundSeconds is how long one history grows: what a linearization costs grows faster than its history.
const roundSeconds = 10

// kills is how often the server is killed in a round.
const kills = 2

var scenarios = []struct {
	name    string
	traffic traffic.Traffic
}{
	{"Kubernetes", traffic.Kubernetes},
	{"KubernetesCreateDelete", traffic.KubernetesCreateDelete},
	{"EtcdPutDeleteLease", traffic.EtcdPutDeleteLease},
	{"EtcdPut", traffic.EtcdPut},
	{"EtcdDelete", traffic.EtcdDelete},
}

func TestRobustness(t *testing.T) {
	rounds := max(1, *seconds/(roundSeconds*len(scenarios)))
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			for number := range rounds {
				reports, requests := round(t, scenario.traffic, traffic.KeyValueMedium)
				if number == 0 && !t.Failed() {
					spoilt(t, scenario.traffic, reports, requests)
				}
			}
		})
	}
}

// round is one history on a fresh server; it gives what clients saw and what was written.
func round(t *testing.T, kind traffic.Traffic, load traffic.KeyValue) ([]report.ClientReport, []model.EtcdRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	lg := zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	fresh := server.Fresh(t, "--watch-progress-notify-interval=100ms")
	endpoints := []string{fresh.URL}
	base := time.Now()
	ids := identity.NewIDProvider()
	set, watchSet := client.NewSet(ids, base), client.NewSet(ids, base)
	defer set.Close()
	defer watchSet.Close()
	if err := traffic.CheckEmptyDatabaseAtStart(ctx, lg, endpoints, set); err != nil {
		t.Fatal(err)
	}

	plain, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	written := &history{client: plain}
	var readers sync.WaitGroup
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	readers.Go(func() { written.read(reading) })

	head := make(chan int64, 1)
	collected := make(chan error, 1)
	go func() {
		collected <- client.CollectClusterWatchEvents(ctx, client.CollectClusterWatchEventsParam{
			Lg: lg, Endpoints: endpoints, MaxRevisionChan: head, ClientSet: watchSet})
	}()

	finish := make(chan struct{})
	var clients sync.WaitGroup
	limiter := rate.NewLimiter(rate.Limit(load.MaximalQPS), load.BurstableQPS)
	keys, pods := traffic.NewKeyStore(10, "key"), traffic.NewKubernetesStorage()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(traffic.SimulateKeyValueTraffic(ctx, &clients, &load, endpoints, set, kind, traffic.RunTrafficLoopParam{
		QPSLimiter: limiter, IDs: set.IdentityProvider(), LeaseIDStorage: identity.NewLeaseIDStorage(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(load.MaxNonUniqueRequestConcurrency),
		KeyStore:                           keys, Storage: pods, Finish: finish}))
	must(traffic.SimulateWatchTraffic(ctx, &clients, &traffic.WatchDefault, endpoints, set, kind, traffic.RunWatchLoopParam{
		Config: traffic.WatchDefault, QPSLimiter: limiter, KeyStore: keys, Storage: pods, Finish: finish, Logger: lg}))
	compactor, err := set.NewClient(endpoints)
	must(err)
	clients.Go(func() { compactLoop(ctx, compactor, plain, written, finish) })

	for range kills {
		time.Sleep(time.Duration(rand.IntN(roundSeconds*1000/kills)) * time.Millisecond)
		fresh.Kill()
		fresh.Start()
	}
	time.Sleep(2 * time.Second)
	close(finish)
	clients.Wait()
	compactor.Close()

	// The validators need a last write that was acknowledged.
	last, err := set.NewClient(endpoints)
	must(err)
	if _, err := last.Put(ctx, "tombstone", "true"); err != nil {
		t.Fatalf("the last write: %v", err)
	}
	last.Close()
	until := report.OperationsMaxRevision(set.Reports())
	head <- until
	close(head)
	if err := <-collected; err != nil {
		t.Error(err)
	}
	for begun := time.Now(); written.last() < until && time.Since(begun) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	stopReading()
	readers.Wait()

	requests, err := written.requests(until)
	if err != nil {
		t.Fatal(err)
	}
	reports := slices.Concat(set.Reports(), watchSet.Reports())
	stats := traffic.CalculateStats(reports, 0, time.Since(base))
	t.Logf("%d answers, %d errors, %d revisions, %d compactions, %d kills", stats.Successes, stats.Failures, until,
		written.compactions, kills)
	if stats.Failures == 0 {
		t.Error("no request failed: the kills have hit nothing")
	}
	result := validate.ValidateAndReturnVisualize(lg, validate.Config{ExpectRevisionUnique: kind.ExpectUniqueRevision()},
		reports, requests, 5*time.Minute)
	if err := result.Error(); err != nil {
		t.Error(err)
	}
	if result.Watch.Status != validate.Success || result.Serializable.Status != validate.Success {
		t.Errorf("not validated: watches %q, reads of the past %q", result.Watch.Status, result.Serializable.Status)
	}
	return reports, requests
}

// spoilt proves that the validators can fail on what was just found right: an event is taken out of a watch, and a
// revision in an answer is raised.
func spoilt(t *testing.T, kind traffic.Traffic, reports []report.ClientReport, requests []model.EtcdRequest) {
	lg := zap.NewNop()
	config := validate.Config{ExpectRevisionUnique: kind.ExpectUniqueRevision()}
	lose := func() bool {
		for _, report := range reports {
			for _, watch := range report.Watch {
				for number, response := range watch.Responses {
					later := number+1 < len(watch.Responses) && len(watch.Responses[number+1].Events) > 0
					if len(response.Events) > 0 && later {
						watch.Responses[number].Events = nil
						return true
					}
				}
			}
		}
		return false
	}
	if !lose() {
		t.Fatal("no watch has an event to lose")
	}
	if result := validate.ValidateAndReturnVisualize(lg, config, reports, requests, time.Minute); result.Watch.Error() == nil {
		t.Error("a lost event was not found")
	}
	raise := func() bool {
		for _, report := range reports {
			for number, operation := range report.KeyValue {
				response := operation.Output.(model.MaybeEtcdResponse)
				if response.Txn != nil && response.Error == "" && response.Revision > 1 {
					response.Revision += 1000
					report.KeyValue[number].Output = response
					return true
				}
			}
		}
		return false
	}
	if !raise() {
		t.Fatal("no write has an answer")
	}
	result := validate.ValidateAndReturnVisualize(lg, config, reports, requests, time.Minute)
	if result.Linearization.Error() == nil {
		t.Error("a wrong revision was not found")
	}
}

// compactLoop compacts as often as etcd's own traffic does, to what the history has been read to.
func compactLoop(ctx context.Context, c *client.RecordingClient, plain *clientv3.Client, written *history, finish chan struct{}) {
	var done int64
	for {
		select {
		case <-time.After(traffic.CompactionDefault.Period):
		case <-finish:
			return
		}
		revision := written.last()
		if revision <= done+1 {
			continue
		}
		// Behind the head by a little, as clients still read there.
		revision = done + 1 + rand.Int64N(revision-done-1)
		// Long, so that only a kill leaves it without an answer.
		asked, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, err := c.Compact(asked, revision)
		cancel()
		if err != nil {
			if !wasCompacted(ctx, plain, revision) {
				continue
			}
			written.compactedUnheard(revision)
		}
		written.compactions++
		done = revision
	}
}

// wasCompacted asks, after a compaction without an answer, whether it was done.
func wasCompacted(ctx context.Context, plain *clientv3.Client, revision int64) bool {
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, time.Second)
		_, err := plain.Get(asked, "key", clientv3.WithRev(revision-1), clientv3.WithCountOnly())
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrCompacted) {
			return err != nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}
