// What the suites of others share: a server under test, fresh, and killed when a test wants it.
module quantykube/tests/peers/server

go 1.26
