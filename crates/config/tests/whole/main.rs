//! Whole files: what they come to, and what is reported about their mistakes.

mod address_list;
mod admin;
mod balance;
mod changes;
mod defaults;
mod diagnostics;
mod discovery;
mod examples;
mod hostile;
mod http3;
mod includes;
mod maps;
mod names;
mod nested;
mod newcomers;
mod pages;
mod paths;
mod persistence;
mod providers;
mod queue;
mod route_body;
mod snapshot;
mod sockets;
mod support;
mod upstream_http;
mod useless;
