// A Dex with one client, whose users are logged in without being asked: the OpenID Connect provider of the tests.
//
// Usage: dex ISSUER ADDRESS WEB CLIENT SECRET REDIRECT_URI
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: dex ISSUER ADDRESS WEB CLIENT SECRET REDIRECT_URI")
	}
	issuer, address, web, client, secret, redirect := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	logger := logrus.New()
	logger.SetLevel(logrus.ErrorLevel)
	kept := memory.New(logger)
	if err := kept.CreateConnector(storage.Connector{ID: "mock", Type: "mockCallback", Name: "Mock"}); err != nil {
		log.Fatal(err)
	}
	static := storage.WithStaticClients(kept, []storage.Client{
		{ID: client, Secret: secret, RedirectURIs: []string{redirect}, Name: client},
	})
	dex, err := server.NewServer(context.Background(), server.Config{
		Issuer: issuer, Storage: static, SkipApprovalScreen: true, Logger: logger, Web: server.WebConfig{Dir: web},
		PrometheusRegistry: prometheus.NewRegistry(),
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(address, dex))
}
