// Package server starts the server that a suite judges: real etcd or quantykube-store, as scripts/suites says.
package server

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Which server, and where its program is. scripts/suites sets both.
const (
	kindVariable    = "QUANTYKUBE_SUITE_SERVER"
	programVariable = "QUANTYKUBE_SUITE_PROGRAM"
)

// Server is a running server with its folder; it ends with the test.
type Server struct {
	// Kind is etcd or store.
	Kind string
	// URL is where it serves clients.
	URL string
	// Data is etcd's data folder, or the store's file.
	Data string

	t       *testing.T
	port    string
	peer    string
	extra   []string
	log     *os.File
	process *exec.Cmd
}

// Fresh starts a server on an empty folder; extra arguments go to either server. It listens when this returns.
func Fresh(t *testing.T, extra ...string) *Server {
	t.Helper()
	kind, folder := os.Getenv(kindVariable), t.TempDir()
	s := &Server{Kind: kind, t: t, port: freePort(t), peer: freePort(t), extra: extra}
	s.URL = "http://127.0.0.1:" + s.port
	switch kind {
	case "etcd":
		s.Data = folder
	case "store":
		s.Data = filepath.Join(folder, "store.qks")
	default:
		t.Fatalf("%s is %q: etcd and store are known; run scripts/suites", kindVariable, kind)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	s.log = log
	t.Cleanup(func() {
		s.Kill()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("what the server said:\n%s", text[max(0, len(text)-4000):])
		}
	})
	s.Start()
	return s
}

// Start starts it again on the same data and port after Kill, and waits until it listens.
func (s *Server) Start() {
	s.t.Helper()
	s.process = s.command()
	s.process.Stdout, s.process.Stderr = s.log, s.log
	// It must not outlive a test that was killed.
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		connection, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err == nil {
			connection.Close()
			return
		}
		if time.Since(begun) > 60*time.Second {
			s.t.Fatalf("%s does not listen after a minute: %v", s.Kind, err)
		}
	}
}

// Kill ends it with SIGKILL, and returns when it is gone.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

func (s *Server) command() *exec.Cmd {
	s.t.Helper()
	program := os.Getenv(programVariable)
	if program == "" {
		s.t.Fatalf("%s is not set: run scripts/suites", programVariable)
	}
	arguments := []string{"--data=" + s.Data, "--listen=127.0.0.1:" + s.port}
	if s.Kind == "etcd" {
		peer := "http://127.0.0.1:" + s.peer
		arguments = []string{"--name=default", "--log-level=error", "--data-dir=" + s.Data,
			"--listen-client-urls=" + s.URL, "--advertise-client-urls=" + s.URL,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer}
	}
	return exec.Command(program, append(arguments, s.extra...)...)
}

// freePort gives a port that nothing listened on a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
}
