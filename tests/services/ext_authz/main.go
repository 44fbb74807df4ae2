// A service of external authorization for the tests of the filter ext_authz, made of Envoy's own messages and gRPC's own server.
//
// ext_authz ADDRESS listens there. The header field "token" of a request says what becomes of it.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	statuses "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type service struct {
	auth.UnimplementedAuthorizationServer
	waiting   atomic.Int64
	cancelled atomic.Int64
}

func set(name, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}}
}

func add(name, value string) *core.HeaderValueOption {
	option := set(name, value)
	option.Append = wrapperspb.Bool(true)
	return option
}

func allow(ok *auth.OkHttpResponse) *auth.CheckResponse {
	return &auth.CheckResponse{
		Status:       &status.Status{Code: int32(codes.OK)},
		HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: ok},
	}
}

func deny(code kind.StatusCode, body string, headers ...*core.HeaderValueOption) *auth.CheckResponse {
	denied := &auth.DeniedHttpResponse{Status: &kind.HttpStatus{Code: code}, Body: body, Headers: headers}
	return &auth.CheckResponse{
		Status:       &status.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: denied},
	}
}

func (s *service) Check(ctx context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	http := request.GetAttributes().GetRequest().GetHttp()
	switch token := http.GetHeaders()["token"]; token {
	case "good":
		return allow(&auth.OkHttpResponse{
			Headers:         []*core.HeaderValueOption{set("x-user", "ann"), add("x-group", "ops")},
			HeadersToRemove: []string{"token", "x-secret"},
			QueryParametersToSet: []*core.QueryParameter{
				{Key: "who", Value: "ann & bob"},
			},
			QueryParametersToRemove: []string{"key"},
			ResponseHeadersToAdd:    []*core.HeaderValueOption{add("set-cookie", "seen=1"), set("x-checked", "yes")},
		}), nil
	case "bare":
		return &auth.CheckResponse{Status: &status.Status{Code: int32(codes.OK)}}, nil
	case "told", "told-no":
		said, err := structpb.NewStruct(map[string]any{
			"team": "red", "level": 7, "score": 0.5, "roles": []any{"ops", "dev"}, "org": map[string]any{"id": "acme"},
		})
		if err != nil {
			return nil, err
		}
		answer := allow(&auth.OkHttpResponse{})
		if token == "told-no" {
			answer = deny(kind.StatusCode_Forbidden, "no!")
		}
		answer.DynamicMetadata = said
		return answer, nil
	case "deep":
		said, err := structpb.NewStruct(map[string]any{})
		for range 20 {
			said = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStructValue(said)}}
		}
		answer := allow(&auth.OkHttpResponse{})
		answer.DynamicMetadata = said
		return answer, err
	case "echo":
		text, err := protojson.Marshal(request)
		if err != nil {
			return nil, err
		}
		return deny(kind.StatusCode_Conflict, string(text)), nil
	case "deadline":
		ends, _ := ctx.Deadline()
		fields, _ := metadata.FromIncomingContext(ctx)
		return deny(kind.StatusCode_Conflict, fmt.Sprintf("%d %s", time.Until(ends).Milliseconds(), fields[":authority"])), nil
	case "login":
		return deny(kind.StatusCode_Found, "", set("location", "/login"), set("set-cookie", "back=1")), nil
	case "plain":
		return &auth.CheckResponse{Status: &status.Status{Code: int32(codes.Unauthenticated)}}, nil
	case "slow":
		s.waiting.Add(1)
		<-ctx.Done()
		s.cancelled.Add(1)
		return nil, ctx.Err()
	case "counts":
		return deny(kind.StatusCode_Conflict, fmt.Sprintf("%d %d", s.waiting.Load(), s.cancelled.Load())), nil
	case "broken":
		return nil, statuses.Error(codes.Unavailable, "out of order")
	case "large":
		return deny(kind.StatusCode_Forbidden, strings.Repeat("x", 1<<20)), nil
	case "inject":
		return allow(&auth.OkHttpResponse{Headers: []*core.HeaderValueOption{set("x-user", "ann\r\nx-admin: yes")}}), nil
	case "frame":
		return allow(&auth.OkHttpResponse{Headers: []*core.HeaderValueOption{set("content-length", "1")}}), nil
	case "pseudo":
		return allow(&auth.OkHttpResponse{Headers: []*core.HeaderValueOption{set(":path", "/admin")}}), nil
	case "unframe":
		return allow(&auth.OkHttpResponse{HeadersToRemove: []string{"transfer-encoding"}}), nil
	default:
		return deny(kind.StatusCode_Unauthorized, "no!\n", set("www-authenticate", "Bearer"), set("connection", "x-why")), nil
	}
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	auth.RegisterAuthorizationServer(server, &service{})
	log.Fatal(server.Serve(listener))
}
