// A Dex with one client, whose users are logged in without being asked: the OpenID Connect provider and OAuth 2.0 authorization server of
// the tests.
//
// Usage: dex ISSUER ADDRESS WEB CLIENT SECRET REDIRECT_URI
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
)

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: dex ISSUER ADDRESS WEB CLIENT SECRET REDIRECT_URI")
	}
	issuer, address, web, client, secret, redirect := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	kept := memory.New(logger)
	if err := kept.CreateConnector(ctx, storage.Connector{ID: "mock", Type: "mockCallback", Name: "Mock"}); err != nil {
		log.Fatal(err)
	}
	static := storage.WithStaticClients(kept, []storage.Client{
		{ID: client, Secret: secret, RedirectURIs: []string{redirect}, Name: client},
	})
	local := signer.LocalConfig{KeysRotationPeriod: "6h"}
	signs, err := local.Open(ctx, static, time.Hour, time.Now, logger)
	if err != nil {
		log.Fatal(err)
	}
	policy, err := tokens.NewRefreshTokenPolicy(logger, false, "", "", "")
	if err != nil {
		log.Fatal(err)
	}
	dex, err := server.NewServer(ctx, server.Config{
		Issuer: issuer, Storage: static, SkipApprovalScreen: true, Logger: logger, Web: server.WebConfig{Dir: web},
		Signer: signs, RefreshTokenPolicy: policy, PrometheusRegistry: prometheus.NewRegistry(),
		AllowedGrantTypes: []string{"authorization_code", "refresh_token", "client_credentials"},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(address, dex))
}
