//! Black-box tests: the real executable, real sockets, port 0. Each test runs its own product and its own endpoints,
//! so all of them run at once.
//!
//! They know nothing of the product's code. Start reading at [`harness`], then at any module named after a feature.

mod harness;

mod address_list;
mod admin;
mod admin_api;
mod admin_rules;
mod balancers;
mod balancing;
mod basic_auth;
mod body_limit;
mod breakers;
mod canary;
mod command_line;
mod concurrency;
mod discovery_consul;
mod discovery_dns;
mod discovery_docker;
mod discovery_etcd;
mod error_page;
mod faults;
mod filter_when;
mod filters;
mod forwarding;
mod framing;
mod grpc;
mod grpc_web;
mod health;
mod hedging;
mod http2;
mod http2_abuse;
mod http2_both;
mod http2_crossing;
mod http2_flow;
mod http2_through;
mod http3;
mod http3_abuse;
mod http3_life;
mod http3_through;
mod logs;
mod matrix;
mod messages;
mod persistence;
mod picks;
mod providers;
mod proxy_protocol;
mod queue;
mod reload;
mod retries;
mod routing;
mod shutdown;
mod sockets;
mod storm;
mod streaming;
mod tcp;
mod tls;
mod udp;
mod unix_sockets;
mod upstream;
mod upstream_http2;
mod upstream_http2_lines;
mod upstream_http3;
mod upstream_tls;
