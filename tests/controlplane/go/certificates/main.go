// Command certificates writes what a control plane on loopback needs into one folder: an authority (ca.crt), the
// certificates of the API server (server) and of its aggregation layer (proxy), and the key that signs service account
// tokens (accounts.key). The API server's holds for further addresses, too. Neither openssl nor a Python library is
// needed for it.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: certificates FOLDER [ADDRESS...]")
	}
	folder := os.Args[1]
	authority := template("kinema-test-authority")
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	authorityKey := newKey()
	sign := func(certificate *x509.Certificate, key crypto.Signer) []byte {
		signed, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
		check(err)
		return signed
	}
	write(folder, "ca.crt", "CERTIFICATE", sign(authority, authorityKey))

	server := template("kube-apiserver")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, address := range os.Args[2:] {
		server.IPAddresses = append(server.IPAddresses, net.ParseIP(address))
	}
	server.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	proxy := template("front-proxy-client")
	proxy.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, certificate := range map[string]*x509.Certificate{"server": server, "proxy": proxy} {
		key := newKey()
		write(folder, name+".crt", "CERTIFICATE", sign(certificate, key))
		writeKey(folder, name+".key", key)
	}
	writeKey(folder, "accounts.key", newKey())
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	check(err)
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	return key
}

func writeKey(folder, name string, key *ecdsa.PrivateKey) {
	encoded, err := x509.MarshalECPrivateKey(key)
	check(err)
	write(folder, name, "EC PRIVATE KEY", encoded)
}

func write(folder, name, kind string, content []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	check(os.WriteFile(filepath.Join(folder, name), text, 0o600))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
