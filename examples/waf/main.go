// A web application firewall beside the proxy: Coraza with the OWASP Core Rule Set, asked about each request by the filter ext_authz.
//
//	waf -listen 127.0.0.1:9002                  the Core Rule Set, which blocks
//	waf -listen 127.0.0.1:9002 -observe         it only logs what it would block
//	waf -listen 127.0.0.1:9002 -rules own.conf  with rules of your own after those of the set (SecLang of ModSecurity)
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	ruleset "github.com/corazawaf/coraza-coreruleset/v4"
	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/types"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// The largest request: a body of 16 MiB, the most that ext_authz sends, and its head.
const requestMax = 17 << 20

type firewall struct {
	auth.UnimplementedAuthorizationServer
	waf coraza.WAF
}

// Compiles the Core Rule Set and then the files.
func build(observe bool, files []string) (coraza.WAF, error) {
	engine := "On"
	if observe {
		engine = "DetectionOnly"
	}
	config := coraza.NewWAFConfig().
		WithRootFS(ruleset.FS).
		WithErrorCallback(func(rule types.MatchedRule) { log.Print(rule.ErrorLog()) }).
		WithDirectives("Include @coraza.conf-recommended\nInclude @crs-setup.conf.example\nInclude @owasp_crs/*.conf\n").
		// Audit logs would hold bodies; what was matched goes to the log.
		WithDirectives("SecRuleEngine " + engine + "\nSecAuditEngine Off\nSecResponseBodyAccess Off\n")
	for _, file := range files {
		rules, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config = config.WithDirectives(string(rules))
	}
	return coraza.NewWAF(config)
}

// Check inspects one request: its head, then its body if there is one.
func (f *firewall) Check(_ context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	attributes := request.GetAttributes()
	http := attributes.GetRequest().GetHttp()
	transaction := f.waf.NewTransactionWithID(http.GetId())
	defer func() {
		transaction.ProcessLogging()
		if err := transaction.Close(); err != nil {
			log.Print(err)
		}
	}()
	client := attributes.GetSource().GetAddress().GetSocketAddress()
	server := attributes.GetDestination().GetAddress().GetSocketAddress()
	transaction.ProcessConnection(client.GetAddress(), int(client.GetPortValue()), server.GetAddress(), int(server.GetPortValue()))
	transaction.ProcessURI(http.GetPath(), http.GetMethod(), http.GetProtocol())
	for name, value := range http.GetHeaders() {
		// Pseudo-header fields are in the request line.
		if !strings.HasPrefix(name, ":") {
			transaction.AddRequestHeader(name, value)
		}
	}
	transaction.AddRequestHeader("host", http.GetHost())
	transaction.SetServerName(http.GetHost())
	if stopped := transaction.ProcessRequestHeaders(); stopped != nil {
		return deny(stopped), nil
	}
	body := http.GetRawBody()
	if len(body) == 0 {
		body = []byte(http.GetBody())
	}
	if transaction.IsRequestBodyAccessible() && len(body) > 0 {
		stopped, _, err := transaction.WriteRequestBody(body)
		if err != nil {
			return nil, err
		}
		if stopped != nil {
			return deny(stopped), nil
		}
	}
	stopped, err := transaction.ProcessRequestBody()
	if err != nil {
		return nil, err
	}
	if stopped != nil {
		return deny(stopped), nil
	}
	return &auth.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}}, nil
}

// Denies with the status of the rule, 403 by default. Clients learn nothing else.
func deny(stopped *types.Interruption) *auth.CheckResponse {
	code := kind.StatusCode(stopped.Status)
	if code < 400 {
		code = kind.StatusCode_Forbidden
	}
	denied := &auth.DeniedHttpResponse{
		Status:  &kind.HttpStatus{Code: code},
		Headers: []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "content-type", Value: "text/plain"}}},
		Body:    "The request was rejected.\n",
	}
	return &auth.CheckResponse{
		Status:       &status.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: denied},
	}
}

type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func main() {
	var files list
	address := flag.String("listen", "127.0.0.1:9002", "address for calls of gRPC, without TLS")
	observe := flag.Bool("observe", false, "log what would be blocked, and block nothing")
	flag.Var(&files, "rules", "file with more rules, after those of the Core Rule Set; may be given again")
	flag.Parse()
	waf, err := build(*observe, files)
	if err != nil {
		log.Fatal("the rules cannot be used: ", err)
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(requestMax))
	auth.RegisterAuthorizationServer(server, &firewall{waf: waf})
	ends, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		<-ends.Done()
		server.GracefulStop()
	}()
	fmt.Println("the firewall listens on", listener.Addr())
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
