package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// history is what the server has written, as it tells it itself: every revision's events, read from the first revision
// on and over every restart. The validators take it for what etcd's own runs read from the write-ahead log. It is whole
// or an error: each revision from 2 on must have come, and compaction never passes what has been read.
type history struct {
	client *clientv3.Client
	// compactions is how many were done; read it when nobody compacts any more.
	compactions int

	mutex     sync.Mutex
	revisions [][]*clientv3.Event
	doubtful  []compaction
	failed    error
}

// compaction is one that was done though its client got no answer, and the newest revision that was there by then.
type compaction struct{ to, head int64 }

// read follows the server until the context ends.
func (h *history) read(ctx context.Context) {
	for ctx.Err() == nil {
		watch, cancel := context.WithCancel(ctx)
		for response := range h.client.Watch(watch, "", clientv3.WithPrefix(), clientv3.WithRev(h.last()+1)) {
			if err := response.Err(); err != nil {
				if errors.Is(err, rpctypes.ErrCompacted) {
					h.fail(fmt.Errorf("compacted at %d with only %d read", response.CompactRevision, h.last()))
				}
				break
			}
			h.add(response.Events)
		}
		cancel()
		time.Sleep(10 * time.Millisecond)
	}
}

func (h *history) add(events []*clientv3.Event) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, event := range events {
		last := int64(len(h.revisions)) + 1
		switch revision := event.Kv.ModRevision; revision {
		case last:
			h.revisions[len(h.revisions)-1] = append(h.revisions[len(h.revisions)-1], event)
		case last + 1:
			h.revisions = append(h.revisions, []*clientv3.Event{event})
		default:
			if h.failed == nil {
				h.failed = fmt.Errorf("revision %d was told after %d", revision, last)
			}
		}
	}
}

func (h *history) fail(err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.failed == nil {
		h.failed = err
	}
}

// last is the newest revision that has been read.
func (h *history) last() int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return int64(len(h.revisions)) + 1
}

// compactedUnheard notes a compaction that was done though its client got no answer.
func (h *history) compactedUnheard(revision int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.doubtful = append(h.doubtful, compaction{revision, int64(len(h.revisions)) + 1})
}

// requests gives what was written as requests that do the same, one for each revision. A lease is granted before its
// first key and never revoked, for whether a delete came from a revocation makes no difference to anything that is
// validated. Of compactions only those stand in it that no client had an answer of, behind the newest revision that can
// have been there: the validators ask for no more.
func (h *history) requests(until int64) ([]model.EtcdRequest, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.failed != nil {
		return nil, h.failed
	}
	if last := int64(len(h.revisions)) + 1; last < until {
		return nil, fmt.Errorf("only revisions up to %d were read, expected %d", last, until)
	}
	leases := map[int64]bool{}
	var requests []model.EtcdRequest
	doubtful := h.doubtful
	for index, events := range h.revisions {
		txn := &model.TxnRequest{}
		for _, event := range events {
			key := string(event.Kv.Key)
			if event.Type == clientv3.EventTypeDelete {
				txn.OperationsOnSuccess = append(txn.OperationsOnSuccess,
					model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: key}})
				continue
			}
			lease := event.Kv.Lease
			if lease != 0 && !leases[lease] {
				leases[lease] = true
				requests = append(requests, model.EtcdRequest{
					Type: model.LeaseGrant, LeaseGrant: &model.LeaseGrantRequest{LeaseID: lease}})
			}
			txn.OperationsOnSuccess = append(txn.OperationsOnSuccess, model.EtcdOperation{Type: model.PutOperation,
				Put: model.PutOptions{Key: key, Value: model.ToValueOrHash(string(event.Kv.Value)), LeaseID: lease}})
		}
		requests = append(requests, model.EtcdRequest{Type: model.Txn, Txn: txn})
		for len(doubtful) > 0 && doubtful[0].head <= int64(index)+2 {
			requests = append(requests, model.EtcdRequest{
				Type: model.Compact, Compact: &model.CompactRequest{Revision: doubtful[0].to}})
			doubtful = doubtful[1:]
		}
	}
	return requests, nil
}
