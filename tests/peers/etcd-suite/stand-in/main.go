// Program etcd stands where etcd's tests start etcd: it takes etcd's options and becomes quantykube-store with the same
// meaning. An option that it does not know ends it, so that no test passes because a wish of its was dropped in silence.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// storeVariable may name the store's program; else it is beside this one. The tests pass on only a few variables.
const storeVariable = "ETCD_STAND_IN_STORE"

// How an option of etcd's is taken.
const (
	ignored = iota // of members, peers, Raft: one member has no use for it
	same           // the store has it under the same name
	special        // translated below
)

var known = map[string]int{
	"name": same, "quota-backend-bytes": same, "cert-file": same, "key-file": same, "trusted-ca-file": same,
	"client-cert-auth": same, "max-request-bytes": same, "watch-progress-notify-interval": same,
	"listen-client-urls": special, "data-dir": special, "auto-tls": special,
	"advertise-client-urls": ignored, "listen-peer-urls": ignored, "initial-advertise-peer-urls": ignored,
	"initial-cluster-token": ignored, "snapshot-count": ignored, "initial-cluster": ignored,
	"initial-cluster-state": ignored, "strict-reconfig-check": ignored, "log-level": ignored,
	"experimental-wait-cluster-ready-timeout": ignored,
}

func fail(text string, values ...any) {
	fmt.Fprintf(os.Stderr, "stand-in for etcd: "+text+"\n", values...)
	os.Exit(2)
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "tell-when-ready" {
		tellWhenReady(os.Args[2])
		return
	}
	given := map[string]string{}
	arguments := os.Args[1:]
	for len(arguments) > 0 {
		name, value, whole := strings.Cut(strings.TrimLeft(arguments[0], "-"), "=")
		arguments = arguments[1:]
		if name == "version" {
			fmt.Println("etcd Version: 3.6.14")
			return
		}
		if _, ok := known[name]; !ok {
			fail("--%s is not known: see whether the store has it", name)
		}
		if !whole {
			if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
				value, arguments = arguments[0], arguments[1:]
			} else {
				value = "true"
			}
		}
		// The last one counts, as with etcd.
		given[name] = value
	}
	data := given["data-dir"]
	if err := os.MkdirAll(data, 0o700); err != nil {
		fail("%v", err)
	}
	listen, err := url.Parse(given["listen-client-urls"])
	if err != nil {
		fail("--listen-client-urls: %v", err)
	}
	if given["auto-tls"] == "true" {
		given["cert-file"], given["key-file"] = selfSigned(data, listen.Hostname())
	}
	own, err := os.Executable()
	if err != nil {
		fail("%v", err)
	}
	store := os.Getenv(storeVariable)
	if store == "" {
		store = filepath.Join(filepath.Dir(own), "quantykube-store")
	}
	line := []string{store, "--data=" + filepath.Join(data, "store.qks"), "--listen=" + listen.Host}
	for name, value := range given {
		if known[name] == same {
			line = append(line, "--"+name+"="+value)
		}
	}
	teller := exec.Command(own, "tell-when-ready", listen.Host)
	teller.Stdout, teller.Stderr = os.Stdout, os.Stderr
	if err := teller.Start(); err != nil {
		fail("%v", err)
	}
	// The tests end the process that they started: it must be the store.
	fail("%s: %v", store, syscall.Exec(store, line, os.Environ()))
}

// tellWhenReady prints etcd's line once the address is served.
func tellWhenReady(address string) {
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
			fmt.Println("ready to serve client requests")
			return
		}
	}
}

// selfSigned makes what etcd's --auto-tls makes.
func selfSigned(folder, host string) (string, string) {
	certificate, keyFile := filepath.Join(folder, "auto.crt"), filepath.Join(folder, "auto.key")
	if _, err := os.Stat(certificate); err == nil {
		return certificate, keyFile
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fail("%v", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "stand-in"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{host},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		fail("%v", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		fail("%v", err)
	}
	for name, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der},
		keyFile:     {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			fail("%v", err)
		}
	}
	return certificate, keyFile
}
