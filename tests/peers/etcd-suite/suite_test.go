// Package suite names what is run from here: the tests of go.etcd.io/etcd/tests/v3/common, which are in no package that
// can be imported. scripts/suites builds them with `go test -c go.etcd.io/etcd/tests/v3/common`.
package suite

import _ "go.etcd.io/etcd/tests/v3/framework"
